// Sizes of buffers, and the sublayers put together.
#include "model/compute.h"

#include <algorithm>

#include "model/regions.h"

namespace loom::model {

template <typename T>
BufferSizes buffer_sizes(const ModelSpec& spec, const Share& share, int64_t batch, int64_t tokens) {
  const int64_t rows = batch * tokens;
  BufferSizes sizes;
  sizes.activation = (rows * spec.width * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  sizes.saved = BlockSaved<T>(spec, share, rows, nullptr).bytes;
  sizes.embedding_workspace = spec.embedding_norm ? EmbeddingWorkspace<T>(spec, rows, nullptr).bytes : 0;
  sizes.block_workspace = BlockWorkspace<T>(spec, share, rows, nullptr).bytes;
  sizes.head_workspace = HeadWorkspace<T>(spec, batch, tokens, nullptr).bytes;
  sizes.workspace = std::max({sizes.embedding_workspace, sizes.block_workspace, sizes.head_workspace});
  return sizes;
}

template BufferSizes buffer_sizes<float>(const ModelSpec&, const Share&, int64_t, int64_t);
template BufferSizes buffer_sizes<bf16>(const ModelSpec&, const Share&, int64_t, int64_t);
template BufferSizes buffer_sizes<fp16>(const ModelSpec&, const Share&, int64_t, int64_t);
template BufferSizes buffer_sizes<double>(const ModelSpec&, const Share&, int64_t, int64_t);

template <typename T>
Compute<T>::Compute(const ModelSpec& spec, const Share& share)
    : spec_(spec),
      share_(share),
      units_(units_of(spec)),
      attention_(spec, share),
      feed_forward_(spec, share),
      layers_(spec),
      op_(ops::operators<T>()) {}

template Compute<float>::Compute(const ModelSpec&, const Share&);
template Compute<bf16>::Compute(const ModelSpec&, const Share&);
template Compute<fp16>::Compute(const ModelSpec&, const Share&);
template Compute<double>::Compute(const ModelSpec&, const Share&);

}  // namespace loom::model
