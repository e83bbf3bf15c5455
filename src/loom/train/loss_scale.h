// Loss scale: what an fp16 run multiplies its loss by before backward, so that derivatives fit into fp16,
// which holds nothing above 65504 and little below 6e-8. A step whose gradients are not finite is skipped,
// and the scale is divided. After many finite steps the scale is multiplied again.
//
// The rule and its parameters are those of SageMaker's model parallelism (scale_window, min_scale,
// delayed_shift, static_loss_scale), which has them from Megatron's DynamicLossScaler, initial scale and
// factor included.
//
// Not here: scaling (the head does it, engine/executor.h), and dividing (the optimizer).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "format/json_file.h"

namespace loom::train {

/// What may be set of it. Precisions other than fp16 need none of it.
struct LossScale {
  double initial = 4294967296.0;  // 2^32
  double factor = 2;              // that it is divided by after an overflow, and multiplied by
  int64_t window = 1000;          // steps without an overflow after which it is multiplied
  double minimum = 1;             // an overflow with this scale ends the run
  int64_t delayed_shift = 1;  // overflows after which it is divided; all count until it is multiplied again
  double constant = 0;        // "static": one scale for the whole run; 0: as above

  /// Errors: invalid_argument, naming the key.
  Status check() const;
};

/// The scale of a run, and what has become of its steps. The same on all ranks, since they are told the same.
class LossScaler {
 public:
  /// `scales`: whether the run is in fp16. If not, the scale is 1, and nothing is ever skipped.
  LossScaler(const LossScale& settings, bool scales);

  bool scales() const { return scales_; }
  /// Of the next step.
  double scale() const { return scale_; }
  /// Steps that were not applied, of all so far.
  int64_t skipped() const { return skipped_; }

  /// After `step`, which was skipped or not. Errors: not_finite when it was, and no smaller scale may be
  /// tried: the scale is the minimum, or static and has failed kMostInARow times in a row.
  Status update(int64_t step, double loss, bool skipped);

  /// What a checkpoint must have of it.
  format::Json to_json() const;
  /// Goes on from a checkpoint made after so many steps; what has been set since counts: a static scale, or a
  /// higher minimum. Errors: invalid_data.
  Status restore(const format::Json& json, int64_t steps);

  /// As many as lead from 2^32 to 1.
  static constexpr int64_t kMostInARow = 32;

 private:
  Status give_up(int64_t step, double loss) const;

  LossScale settings_;
  bool scales_;
  double scale_;
  int64_t applied_ = 0;   // steps since the last overflow or multiplication
  int64_t in_a_row_ = 0;  // skipped, up to the last step
  int64_t shifts_left_;   // overflows until it is divided
  int64_t skipped_ = 0;
};

}  // namespace loom::train
