// Sums over the arrays of each buffer.
#include "model/split_sizes.h"

#include <algorithm>

#include "model/regions.h"
#include "model/sequence_parallel.h"
#include "model/split_regions.h"

namespace loom::model {
namespace {

int64_t bytes_of(int64_t elements, size_t size) { return elements * static_cast<int64_t>(size); }

}  // namespace

template <typename T>
SplitSizes split_sizes(const ModelSpec& spec, const Share& share, int64_t batch, int64_t tokens) {
  using A = acc_t<T>;
  const int64_t rows = batch * tokens, own = own_rows(share, rows);
  const int64_t columns = (spec.vocabulary + share.degree - 1) / share.degree;
  SplitSizes sizes;
  sizes.rows = bytes_of(rows * spec.width, sizeof(T));
  sizes.own = bytes_of(own * spec.width, sizeof(T));
  sizes.block_saved = SplitBlockSaved<T>(spec, share, rows, own, nullptr).bytes;
  sizes.head_saved = SplitHeadSaved<T>(spec, own, nullptr).bytes;
  sizes.logits = bytes_of(head_rows(share, rows) * columns, sizeof(A));
  sizes.numbers = bytes_of(3, sizeof(A));
  sizes.embedding_workspace = spec.embedding_norm ? EmbeddingWorkspace<T>(spec, own, nullptr).bytes : 0;
  sizes.block_workspace =
      bytes_of(rows * std::max(share.feed_forward, 4 * share.heads * spec.head_size()), sizeof(T));
  sizes.workspace = std::max(sizes.block_workspace, sizes.embedding_workspace);
  return sizes;
}

template SplitSizes split_sizes<float>(const ModelSpec&, const Share&, int64_t, int64_t);
template SplitSizes split_sizes<bf16>(const ModelSpec&, const Share&, int64_t, int64_t);
template SplitSizes split_sizes<fp16>(const ModelSpec&, const Share&, int64_t, int64_t);
template SplitSizes split_sizes<double>(const ModelSpec&, const Share&, int64_t, int64_t);

}  // namespace loom::model
