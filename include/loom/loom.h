// Loom: trains transformer language models, with collectives by Weft. This header is the whole interface:
//
//   status.h    Status, Result<T>: what every function returns that can fail
//   dataset.h   text files into tokens to train on
//   config.h    what a run is told
//   plan.h      memory and time of a step, before anything runs
//   training.h  a run on one rank
//   observer.h  what a run tells while it goes: lines, files, or functions of your own
//   model.h     what a trained model says: evaluation, sampling, logits
//
// C++20, shared library or static. Nothing throws but the standard library when memory ends.
#pragma once

#include <loom/config.h>
#include <loom/dataset.h>
#include <loom/model.h>
#include <loom/observer.h>
#include <loom/plan.h>
#include <loom/status.h>
#include <loom/training.h>
