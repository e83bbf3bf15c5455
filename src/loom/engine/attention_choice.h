// Whether cuDNN computes the attention of a job. All ranks take it, with one version, or none does: gradients
// of what several ranks hold must have the same bits.
//
// Thread safety: functions.
#pragma once

#include <string_view>

#include "device/cuda/attention_graph.h"
#include "engine/groups.h"
#include "engine/rank_device.h"
#include "engine/where.h"
#include "program/job.h"

namespace loom::engine {

/// "own", "cudnn" or "auto", as parallel.attention has it; another text is automatic.
Attention attention_from(std::string_view name);

/// A rank's attention, for cuDNN. Errors: unsupported, with what of the job cuDNN does not compute, and the
/// key to change.
Result<cuda::AttentionGraphShape> attention_shape_of(const program::Job& job, int tensor);
/// Bytes of a GPU's memory, at most, that cuDNN takes beside the arena for the job; 0 where it computes
/// nothing.
int64_t attention_bytes(const program::Job& job, Attention attention);

/// Makes the plans, and allocates what they need. A collective, unless the job asks for its own. Errors:
/// unsupported (the job asks for cuDNN, which one of the ranks cannot have), out_of_memory,
/// communication_error.
Result<ChosenAttention> choose_attention(const program::Job& job, const Groups& groups, const Where& where,
                                         RankDevice& device);

}  // namespace loom::engine
