// Small jobs of every family and head.
#pragma once

#include "engine/ranks.h"
#include "model/family_specs.h"
