// Looking at the job, and agreeing.
#include "engine/attention_choice.h"

#include <algorithm>

#include "device/cuda/attentions.h"

namespace loom::engine {
namespace {

cuda::ElementType attention_type_of(const program::Job& job) {
  return program::with_type(job.precision, []<typename T>(T) { return cuda::kElementType<T>; });
}

/// Of jobs that cuDNN's attention is not for.
Status check_attention_of(const program::Job& job) {
  const model::ModelSpec& spec = job.spec;
  if (job.packed)
    return fail(Code::unsupported,
                "cuDNN's attention would let texts of one sequence see each other, and data.packing is true");
  if (spec.attention_dropout > 0)
    return fail(Code::unsupported,
                "cuDNN's attention would drop other elements than Loom's, and attention's dropout is {}: set "
                "model.dropout to 0",
                spec.attention_dropout);
  if (spec.position == model::Position::alibi)
    return fail(Code::unsupported,
                "cuDNN's ALiBi knows the heads of one rank only, and the model's positions are ALiBi's");
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    if (spec.window_of(layer) > 0)
      return fail(Code::unsupported, "the model's attention has windows, of {} tokens in block {}",
                  spec.window_of(layer), layer);
  return {};
}

/// Where ranks have several versions, none is taken. All ranks name the same two, whichever of them is heard.
Status same_library(const Groups& groups, const Status& own) {
  int64_t version = 0;
  if (own.ok()) version = static_cast<int64_t>((*cuda::cudnn())->get_version());
  const Result<std::vector<int64_t>> all = groups.gather(version);
  LOOM_TRY(all.status());
  if (!own.ok()) return own;
  const auto loaded = [](int64_t of) { return of != 0; };
  const auto first = std::ranges::find_if(*all, loaded);
  const auto other = std::find_if(first, all->end(), [&](int64_t of) { return loaded(of) && of != *first; });
  if (other == all->end()) return {};
  return fail(Code::unsupported, "rank {} has cuDNN {}, rank {} has {}: start all ranks with one version",
              first - all->begin(), *first, other - all->begin(), *other);
}

}  // namespace

Attention attention_from(std::string_view name) {
  return name == "own" ? Attention::own : name == "cudnn" ? Attention::cudnn : Attention::automatic;
}

Result<cuda::AttentionGraphShape> attention_shape_of(const program::Job& job, int tensor) {
  const model::AttentionGeometry attention = job.share(tensor).attention;
  cuda::AttentionGraphShape shape;
  shape.type = attention_type_of(job);
  shape.batch = job.batch, shape.tokens = job.tokens;
  shape.heads = attention.query_heads, shape.key_heads = attention.key_value_heads;
  shape.head_size = attention.head_size;
  shape.causal = job.spec.causal;
  shape.padded = !job.spec.causal && job.spec.padding >= 0;
  shape.deterministic = job.strict;
  LOOM_TRY(check_attention(shape));
  LOOM_TRY(check_attention_of(job));
  return shape;
}

int64_t attention_bytes(const program::Job& job, Attention attention) {
  if (attention == Attention::own) return 0;
  const Result<cuda::AttentionGraphShape> shape = attention_shape_of(job, 0);
  return shape.ok() ? cuda::attention_scratch_bound(*shape) : 0;
}

Result<ChosenAttention> choose_attention(const program::Job& job, const Groups& groups, const Where& where,
                                         RankDevice& device) {
  ChosenAttention chosen;
  if (where.attention == Attention::own) return chosen;
  if (where.gpu < 0) {
    if (where.attention == Attention::automatic) return chosen;
    return fail(Code::unsupported,
                "parallel.attention is cudnn, which computes on GPUs, and the ranks compute on CPUs: set "
                "parallel.device to cuda, or parallel.attention to own");
  }
  Status own;
  if (const Result<cuda::AttentionGraphShape> shape = attention_shape_of(job, groups.coordinates().tensor);
      shape.ok())
    own = device.attend_by_cudnn(*shape);
  else own = shape.status();
  // A rank that lacks memory ends the run, whatever the others lack.
  const Result<bool> some_failed = any_rank(groups, !own.ok() && own.code() != Code::unsupported);
  LOOM_TRY(some_failed.status());
  own = same_library(groups, own);
  const Status all = groups.agree(own);
  if (*some_failed) return all;
  if (all.ok()) {
    chosen.library = cuda::Attentions::library_name();
    return chosen;
  }
  if (all.code() != Code::unsupported) return all;
  if (where.attention == Attention::cudnn)
    return fail(all.code(),
                "parallel.attention is cudnn, but {}; parallel.attention=own takes Loom's kernels",
                all.message());
  device.attend_by_kernels();
  chosen.why_not = "attention is computed by Loom's kernels: " + all.message();
  return chosen;
}

}  // namespace loom::engine
