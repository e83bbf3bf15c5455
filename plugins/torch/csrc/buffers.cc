#include "buffers.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>

namespace weft_torch {

namespace {

const char* byte_of(const at::Tensor& tensor) { return static_cast<const char*>(tensor.const_data_ptr()); }

int64_t all_elements(const std::vector<at::Tensor>& list) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : list) sum += tensor.numel();
  return sum;
}

// One tensor over the memory of all, if they lie one behind the other.
std::optional<at::Tensor> adjacent(const std::vector<at::Tensor>& list) {
  const char* next = byte_of(list[0]);
  for (const at::Tensor& tensor : list) {
    if (!is_plain(tensor) || !tensor.is_alias_of(list[0]) || byte_of(tensor) != next) return std::nullopt;
    next += tensor.nbytes();
  }
  return list[0].as_strided({all_elements(list)}, {1});
}

// An element of two tensors would have the value of the one that is written last. Only plain tensors are
// compared: strided ones, as the columns of a matrix, may lie between each other.
void check_apart(const std::vector<at::Tensor>& list, const char* what) {
  std::vector<at::Tensor> by_place;
  for (const at::Tensor& tensor : list) {
    if (tensor.nbytes() > 0 && is_plain(tensor)) by_place.push_back(tensor);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const at::Tensor& a, const at::Tensor& b) { return byte_of(a) < byte_of(b); });
  for (size_t i = 1; i < by_place.size(); ++i) {
    if (overlap(by_place[i - 1], by_place[i])) {
      C10_THROW_ERROR(ValueError,
                      c10::str(what,
                               " has tensors that share memory; give each rank's part a "
                               "place of its own, as [torch.empty(n) for _ in range(ranks)] does."));
    }
  }
}

}  // namespace

const at::Tensor& only(const Tensors& tensors, const char* what) {
  if (tensors.size() != 1) {
    C10_THROW_ERROR(ValueError, c10::str(what, " needs one tensor, but was given ", tensors.size(), "."));
  }
  return tensors[0];
}

const Tensors& only_list(const std::vector<Tensors>& lists, const char* what) {
  if (lists.size() != 1) {
    C10_THROW_ERROR(ValueError,
                    c10::str(what, " needs one list of tensors, but was given ", lists.size(), "."));
  }
  return lists[0];
}

void check_pairs(size_t inputs, size_t outputs, const char* what) {
  if (inputs != outputs) {
    C10_THROW_ERROR(ValueError, c10::str(what, " has ", inputs, " inputs and ", outputs,
                                         " outputs; give as many of each."));
  }
}

void check_input(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined()) C10_THROW_ERROR(ValueError, c10::str(what, " is no tensor."));
  if (tensor.layout() != at::kStrided) {
    C10_THROW_ERROR(ValueError, c10::str(what, " has the layout ", tensor.layout(),
                                         ", but backend weft takes dense tensors; call to_dense()."));
  }
}

void check_output(const at::Tensor& tensor, const char* what) {
  check_input(tensor, what);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    C10_THROW_ERROR(ValueError, c10::str(what,
                                         " has several elements in one place of memory, as expand() makes "
                                         "them; clone() it to receive a result."));
  }
}

void check_list(const std::vector<at::Tensor>& list, int ranks, const char* what, bool output) {
  if (static_cast<int>(list.size()) != ranks) {
    C10_THROW_ERROR(ValueError, c10::str(what, " has ", list.size(), " tensors, but the group has ", ranks,
                                         " ranks; give one for each."));
  }
  for (const at::Tensor& tensor : list) {
    output ? check_output(tensor, what) : check_input(tensor, what);
    if (tensor.scalar_type() != list[0].scalar_type()) {
      C10_THROW_ERROR(ValueError, c10::str(what, " has tensors of type ", list[0].scalar_type(), " and ",
                                           tensor.scalar_type(), "; they must be of one type."));
    }
  }
  if (output) check_apart(list, what);
}

void check_contiguous(const at::Tensor& tensor, const char* what) {
  if (tensor.is_contiguous()) return;
  C10_THROW_ERROR(ValueError, c10::str("Tensors must be contiguous, but ", what, " has the strides ",
                                       tensor.strides(), "; call contiguous()."));
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor plain(const at::Tensor& tensor, std::optional<at::ScalarType> type) {
  at::Tensor resolved = tensor.resolve_conj().resolve_neg().contiguous();
  return type ? resolved.to(*type) : resolved;
}

Landing landing(const at::Tensor& tensor, std::optional<at::ScalarType> type) {
  if (is_plain(tensor) && (!type || *type == tensor.scalar_type())) return {{}, tensor};
  return {tensor, at::empty(tensor.sizes(), tensor.options()
                                                .dtype(type.value_or(tensor.scalar_type()))
                                                .memory_format(at::MemoryFormat::Contiguous))};
}

void Landing::give_back() const {
  if (target.defined()) target.copy_(memory.view(target.sizes()));
}

at::Tensor flatten(const std::vector<at::Tensor>& list, std::optional<at::ScalarType> type) {
  if (!type || *type == list[0].scalar_type()) {
    if (auto whole = adjacent(list)) return *whole;
  }
  at::Tensor flat =
      at::empty({all_elements(list)}, list[0].options().dtype(type.value_or(list[0].scalar_type())));
  int64_t begin = 0;
  for (const at::Tensor& tensor : list) {
    flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    begin += tensor.numel();
  }
  return flat;
}

ListLanding list_landing(const std::vector<at::Tensor>& list, std::optional<at::ScalarType> type) {
  if (!type || *type == list[0].scalar_type()) {
    if (auto whole = adjacent(list)) return {{}, *whole};
  }
  return {list,
          at::empty({all_elements(list)}, list[0].options().dtype(type.value_or(list[0].scalar_type())))};
}

void ListLanding::give_back() const {
  int64_t begin = 0;
  for (const at::Tensor& target : targets) {
    target.copy_(memory.narrow(0, begin, target.numel()).view(target.sizes()));
    begin += target.numel();
  }
}

bool same_sizes(const std::vector<at::Tensor>& list) {
  for (const at::Tensor& tensor : list) {
    if (tensor.numel() != list[0].numel()) return false;
  }
  return true;
}

Counts counts_of(const std::vector<at::Tensor>& list, size_t per_element) {
  Counts counts;
  for (const at::Tensor& tensor : list) counts.push_back(tensor.numel() * per_element);
  return counts;
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() > 0 && b.nbytes() > 0 && byte_of(a) < byte_of(b) + b.nbytes() &&
         byte_of(b) < byte_of(a) + a.nbytes();
}

}  // namespace weft_torch
