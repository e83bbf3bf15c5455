// Tensors as contiguous memory that Weft can take, and the copies that make them so.
#ifndef WEFT_TORCH_BUFFERS_H_
#define WEFT_TORCH_BUFFERS_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace weft_torch {

using Tensors = std::vector<at::Tensor>;
// Elements of each rank's block, as Weft counts them.
using Counts = std::vector<size_t>;

// Throw ValueError, with a sentence that names `what`, unless there is one tensor, or one list; unless there
// are as many inputs as outputs.
const at::Tensor& only(const Tensors& tensors, const char* what);
const Tensors& only_list(const std::vector<Tensors>& lists, const char* what);
void check_pairs(size_t inputs, size_t outputs, const char* what);

// Throw ValueError, with a sentence that names `what`, unless the tensor is a dense one; an
// output must also have a place of its own for every element.
void check_input(const at::Tensor& tensor, const char* what);
void check_output(const at::Tensor& tensor, const char* what);
// The same for a list: not empty, `ranks` tensors, all of one type; outputs share no memory.
void check_list(const std::vector<at::Tensor>& list, int ranks, const char* what, bool output);
// Throws ValueError, with a sentence that names `what`, unless the tensor is contiguous.
void check_contiguous(const at::Tensor& tensor, const char* what);

// Whether the tensor's elements lie in memory one after the other, as they are.
bool is_plain(const at::Tensor& tensor);
// The tensor itself if it is plain and has the type, else a plain copy.
at::Tensor plain(const at::Tensor& tensor, std::optional<at::ScalarType> type = std::nullopt);

// A place for a result: the tensor itself if it is plain and of the type, else memory from which give_back()
// copies it.
struct Landing {
  at::Tensor target;
  at::Tensor memory;
  void give_back() const;
};
Landing landing(const at::Tensor& tensor, std::optional<at::ScalarType> type = std::nullopt);

// Tensors as one: [sum of numel]. If they lie one behind the other it is their memory.
struct ListLanding {
  std::vector<at::Tensor> targets;  // empty: memory is theirs
  at::Tensor memory;
  void give_back() const;
};
ListLanding list_landing(const std::vector<at::Tensor>& list,
                         std::optional<at::ScalarType> type = std::nullopt);
at::Tensor flatten(const std::vector<at::Tensor>& list, std::optional<at::ScalarType> type = std::nullopt);

bool same_sizes(const std::vector<at::Tensor>& list);
// How many elements of Weft each tensor has.
Counts counts_of(const std::vector<at::Tensor>& list, size_t per_element);
// Whether they share memory.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace weft_torch

#endif  // WEFT_TORCH_BUFFERS_H_
