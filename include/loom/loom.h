// Loom: trains transformer language models, with collectives by Weft. This header is the whole interface:
//
//   status.h    Status, Result<T>: what every function that can fail returns
//   dataset.h   turns text files into tokens
//   config.h    the configuration of a run
//   plan.h      memory and time of a step, before a run
//   training.h  a run on one rank
//   observer.h  output of a run: lines, files, or functions of your own
//   model.h     evaluation, sampling and logits of a trained model
//
// C++20, shared library or static. Only the standard library throws, when memory is exhausted.
#pragma once

#include <loom/config.h>
#include <loom/dataset.h>
#include <loom/model.h>
#include <loom/observer.h>
#include <loom/plan.h>
#include <loom/status.h>
#include <loom/training.h>
