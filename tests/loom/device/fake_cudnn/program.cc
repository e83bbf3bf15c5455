// Reading a graph, and computing it in fp32 with one rounding at each tensor of 16 bits.
#include "loom/device/fake_cudnn/program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/fp16.h"

namespace fake_dnn {
namespace {

int64_t round_to(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

bool is_short(int type) { return type == kDnnFloat16 || type == kDnnBfloat16; }

template <typename Visit>
void for_each(const Index& sizes, Visit visit) {
  Index at{};
  for (at[0] = 0; at[0] < sizes[0]; ++at[0])
    for (at[1] = 0; at[1] < sizes[1]; ++at[1])
      for (at[2] = 0; at[2] < sizes[2]; ++at[2])
        for (at[3] = 0; at[3] < sizes[3]; ++at[3]) visit(at);
}

/// An element's number, whatever the strides.
int64_t number_of(const Tensor& tensor, const Index& at) {
  int64_t number = 0;
  for (size_t d = 0; d < 4; ++d) number = number * tensor.sizes[d] + at[d];
  return number;
}

/// Dimensions of 1 are repeated.
Index within(const Tensor& tensor, Index at) {
  for (size_t d = 0; d < 4; ++d)
    if (tensor.sizes[d] == 1) at[d] = 0;
  return at;
}

/// Fewer heads are each of as many neighbours.
constexpr size_t kHeads = 1;
bool shares_heads(const Tensor& many, const Tensor& few) {
  return many.sizes[kHeads] % few.sizes[kHeads] == 0;
}
Index of_shared_head(const Tensor& many, const Tensor& few, Index at) {
  at[kHeads] /= many.sizes[kHeads] / few.sizes[kHeads];
  return at;
}

float rounded(int type, float x) {
  if (type == kDnnFloat16) return to_float(loom::to_fp16(x));
  if (type == kDnnBfloat16) return to_float(loom::to_bf16(x));
  return x;
}

float apply(const Step& step, float x, float b, float t) {
  switch (step.mode) {
    case kDnnAdd: return x + b;
    case kDnnMultiply: return x * b;
    case kDnnDivide: return x / b;
    case kDnnSubtract: return x - b;
    case kDnnExp: return std::exp(x);
    case kDnnLog: return std::log(x);
    case kDnnGreaterOrEqual: return x >= b;
    case kDnnLess: return x < b;
    case kDnnAnd: return x != 0 && b != 0;
    case kDnnSelect: return t != 0 ? x : b;
    default: return x;  // the identity
  }
}

size_t operands_of(int mode) {
  switch (mode) {
    case kDnnExp:
    case kDnnLog:
    case kDnnIdentity:
    case kDnnIndex: return 1;
    case kDnnSelect: return 3;
    default: return 2;
  }
}

// ---- Reading

class Reader {
 public:
  explicit Reader(Program& program) : program_(program) {}

  int read(const Descriptor& operation) {
    Step step{};
    const Descriptor* result = nullptr;
    switch (operation.kind) {
      case kDnnPointwiseOperation: {
        const Descriptor& kind = *operation.at(kDnnPointwiseOf);
        step.kind = Step::Kind::pointwise;
        step.mode = kind.get<int>(kDnnPointwiseModeOf);
        step.axis = kind.get<int64_t>(kDnnPointwiseAxis, -1);
        result = operation.at(kDnnPointwiseY);
        take(operation, {kDnnPointwiseX, kDnnPointwiseB, kDnnPointwiseT}, step);
        const auto there = static_cast<size_t>(
            std::count_if(step.operands.begin(), step.operands.end(), [](int at) { return at >= 0; }));
        if (there != operands_of(step.mode))
          return refuse(kDnnBadParameter, "an operand is missing, or is one too many");
        if (step.mode == kDnnIndex && (step.axis < 0 || step.axis > 3))
          return refuse(kDnnBadParameter, "an index needs an axis");
        break;
      }
      case kDnnMatmulOperation:
        step.kind = Step::Kind::multiply;
        result = operation.at(kDnnMatmulC);
        take(operation, {kDnnMatmulA, kDnnMatmulB, kDnnMatmulRows, kDnnMatmulColumns, kDnnMatmulSums}, step);
        break;
      case kDnnReductionOperation:
        step.kind = Step::Kind::reduce;
        step.mode = operation.at(kDnnReductionOf)->get<int>(kDnnReductionModeOf);
        result = operation.at(kDnnReductionY);
        take(operation, {kDnnReductionX}, step);
        break;
      case kDnnReshapeOperation:
        step.kind = Step::Kind::reshape;
        result = operation.at(kDnnReshapeY);
        take(operation, {kDnnReshapeX}, step);
        break;
      default: return refuse(kDnnDescriptorType, "this is no operation");
    }
    if (failed_ != kDnnSuccess) return failed_;
    step.result = tensor(result);
    if (failed_ != kDnnSuccess) return failed_;
    Tensor& y = program_.tensors[static_cast<size_t>(step.result)];
    if (y.written || y.place == Tensor::Place::number)
      return refuse(kDnnBadParameter, "a tensor is written twice");
    y.written = true;
    if (const int wrong = check(step)) return wrong;
    program_.steps.push_back(step);
    return kDnnSuccess;
  }

 private:
  void take(const Descriptor& operation, std::initializer_list<int> attributes, Step& step) {
    size_t i = 0;
    for (const int attribute : attributes) {
      const Descriptor* const from = operation.at(attribute);
      if (from != nullptr) {
        step.operands[i] = tensor(from);
        if (failed_ != kDnnSuccess) return;
        const Tensor& x = program_.tensors[static_cast<size_t>(step.operands[i])];
        if (x.place == Tensor::Place::between && !x.written)
          failed_ = refuse(kDnnBadParameter, "a tensor is read before it is written");
      }
      ++i;
    }
  }

  int tensor(const Descriptor* descriptor) {
    if (descriptor->kind != kDnnTensor) {
      failed_ = refuse(kDnnDescriptorType, "this is no tensor");
      return -1;
    }
    const auto id = descriptor->get<int64_t>(kDnnTensorId);
    if (const auto known = by_id_.find(id); known != by_id_.end()) {
      if (known->second.second != descriptor)
        failed_ = refuse(kDnnBadParameter, "two tensors have one number");
      return known->second.first;
    }
    Tensor made;
    made.id = id;
    made.alignment = descriptor->get<int64_t>(kDnnTensorAlignment);
    made.type = descriptor->get<int>(kDnnTensorType);
    const auto sizes = descriptor->all<int64_t>(kDnnTensorDimensions),
               strides = descriptor->all<int64_t>(kDnnTensorStrides);
    if (sizes.size() != 4 || strides.size() != 4) {
      failed_ = refuse(kDnnNotSupported, "a tensor has not four dimensions");
      return -1;
    }
    std::copy_n(sizes.begin(), 4, made.sizes.begin());
    std::copy_n(strides.begin(), 4, made.strides.begin());
    made.place = descriptor->is_set(kDnnTensorVirtual)   ? Tensor::Place::between
                 : descriptor->is_set(kDnnTensorByValue) ? Tensor::Place::number
                                                         : Tensor::Place::array;
    const int at = static_cast<int>(program_.tensors.size());
    program_.tensors.push_back(made);
    by_id_[id] = {at, descriptor};
    return at;
  }

  const Tensor& at(int which) const { return program_.tensors[static_cast<size_t>(which)]; }

  /// Whether the sizes are right.
  int check(const Step& step) const {
    const Tensor &y = at(step.result), &x = at(step.operands[0]);
    bool right = true;
    if (step.kind == Step::Kind::pointwise) {
      for (const int operand : step.operands)
        for (size_t d = 0; operand >= 0 && d < 4; ++d)
          right &= at(operand).sizes[d] == y.sizes[d] || at(operand).sizes[d] == 1;
    } else if (step.kind == Step::Kind::multiply) {
      const Tensor& b = at(step.operands[1]);
      right = x.sizes[0] == y.sizes[0] && x.sizes[1] == y.sizes[1] && b.sizes[0] == y.sizes[0] &&
              shares_heads(y, b) && x.sizes[2] == y.sizes[2] && b.sizes[3] == y.sizes[3] &&
              x.sizes[3] == b.sizes[2];
      if (x.type != b.type || !is_short(x.type)) {
        // The scores' gradient enters products as it is computed, in fp32.
        if (!(x.type == kDnnFloat32 && x.place == Tensor::Place::between && is_short(b.type)))
          return refuse(kDnnNotSupported, "a product is of other types");
      }
      for (size_t i = 2; i < 5; ++i)
        if (step.operands[i] >= 0 && at(step.operands[i]).type != kDnnInt32)
          return refuse(kDnnNotSupported, "a number of rows is no int32");
    } else if (step.kind == Step::Kind::reduce) {
      for (size_t d = 0; d < 4; ++d)
        right &= x.sizes[d] == y.sizes[d] || y.sizes[d] == 1 || (d == kHeads && shares_heads(x, y));
    } else {
      right = x.elements() == y.elements();
    }
    return right ? int{kDnnSuccess} : refuse(kDnnBadParameter, "the sizes of an operation do not fit");
  }

  Program& program_;
  std::map<int64_t, std::pair<int, const Descriptor*>> by_id_;
  int failed_ = kDnnSuccess;
};

// ---- Computing

class Run {
 public:
  Run(const Program& program, const std::vector<void*>& arrays, uint64_t turn)
      : program_(program), arrays_(arrays), turn_(turn), between_(program.tensors.size()) {
    for (size_t i = 0; i < between_.size(); ++i)
      if (program.tensors[i].place == Tensor::Place::between)
        between_[i].assign(static_cast<size_t>(program.tensors[i].elements()), 0);
  }

  void step(const Step& step) {
    switch (step.kind) {
      case Step::Kind::pointwise: return pointwise(step);
      case Step::Kind::multiply: return multiply(step);
      case Step::Kind::reduce: return reduce(step);
      case Step::Kind::reshape: return reshape(step);
    }
  }

 private:
  const Tensor& tensor(int which) const { return program_.tensors[static_cast<size_t>(which)]; }

  float read(int which, const Index& where) const {
    if (which < 0) return 0;
    const Tensor& t = tensor(which);
    const Index at = within(t, where);
    if (t.place == Tensor::Place::between)
      return between_[static_cast<size_t>(which)][static_cast<size_t>(number_of(t, at))];
    const void* const from = arrays_[static_cast<size_t>(which)];
    const int64_t offset = t.offset(at);
    switch (t.type) {
      case kDnnFloat16: return to_float(static_cast<const loom::fp16*>(from)[offset]);
      case kDnnBfloat16: return to_float(static_cast<const loom::bf16*>(from)[offset]);
      case kDnnInt32: return static_cast<float>(static_cast<const int32_t*>(from)[offset]);
      default: return static_cast<const float*>(from)[offset];
    }
  }

  void write(int which, const Index& at, float x) {
    const Tensor& t = tensor(which);
    if (t.place == Tensor::Place::between) {
      between_[static_cast<size_t>(which)][static_cast<size_t>(number_of(t, at))] = rounded(t.type, x);
      return;
    }
    void* const to = arrays_[static_cast<size_t>(which)];
    const int64_t offset = t.offset(at);
    switch (t.type) {
      case kDnnFloat16: static_cast<loom::fp16*>(to)[offset] = loom::to_fp16(x); break;
      case kDnnBfloat16: static_cast<loom::bf16*>(to)[offset] = loom::to_bf16(x); break;
      default: static_cast<float*>(to)[offset] = x;
    }
  }

  void pointwise(const Step& step) {
    for_each(tensor(step.result).sizes, [&](const Index& at) {
      const float value = step.mode == kDnnIndex
                              ? static_cast<float>(at[static_cast<size_t>(step.axis)])
                              : apply(step, read(step.operands[0], at), read(step.operands[1], at),
                                      read(step.operands[2], at));
      write(step.result, at, value);
    });
  }

  void reduce(const Step& step) {
    const Tensor &x = tensor(step.operands[0]), &y = tensor(step.result);
    const float first = step.mode == kDnnMost ? -std::numeric_limits<float>::infinity() : 0;
    std::vector<float> results(static_cast<size_t>(y.elements()), first);
    for_each(x.sizes, [&](const Index& at) {
      float& result = results[static_cast<size_t>(number_of(y, of_shared_head(x, y, within(y, at))))];
      const float value = read(step.operands[0], at);
      result = step.mode == kDnnMost ? std::max(result, value) : result + value;
    });
    for_each(y.sizes, [&](const Index& at) {
      write(step.result, at, results[static_cast<size_t>(number_of(y, at))]);
    });
  }

  void multiply(const Step& step) {
    const auto& [a, b, rows, columns, terms] = step.operands;
    const Tensor &y = tensor(step.result), &of_b = tensor(b);
    const int64_t all_terms = tensor(a).sizes[3];
    // Sums that blocks of threads add to have the order in which the blocks come: here bits that change from
    // run to run, and by so much that they show in 16 bits.
    const bool is_raced = y.type == kDnnFloat32 && y.place == Tensor::Place::array;
    const int short_type = tensor(b).type;
    for_each(y.sizes, [&](const Index& at) {
      const auto extent = [&](int of, int64_t otherwise) {
        return of < 0 ? otherwise : static_cast<int64_t>(read(of, at));
      };
      if (at[2] >= extent(rows, y.sizes[2]) || at[3] >= extent(columns, y.sizes[3])) {
        if (y.place == Tensor::Place::between) write(step.result, at, 0);
        return;
      }
      const int64_t count = extent(terms, all_terms);
      float sum = 0;
      for (int64_t i = 0; i < count; ++i) {
        sum += rounded(short_type, read(a, {at[0], at[1], at[2], i})) *
               read(b, of_shared_head(y, of_b, {at[0], at[1], i, at[3]}));
      }
      write(step.result, at, is_raced && turn_ % 2 == 1 ? sum * (1 + 0x1p-12f) : sum);
    });
  }

  /// Element by element of memory.
  void reshape(const Step& step) {
    const Tensor &x = tensor(step.operands[0]), &y = tensor(step.result);
    std::map<int64_t, float> memory;
    for_each(x.sizes, [&](const Index& at) { memory[x.offset(at)] = read(step.operands[0], at); });
    for_each(y.sizes, [&](const Index& at) { write(step.result, at, memory.at(y.offset(at))); });
  }

  const Program& program_;
  const std::vector<void*>& arrays_;
  const uint64_t turn_;
  std::vector<std::vector<float>> between_;
};

}  // namespace

int64_t Tensor::offset(const Index& at) const {
  int64_t offset = 0;
  for (size_t d = 0; d < 4; ++d) offset += at[d] * strides[d];
  return offset;
}

uint64_t Tensor::extent_bytes() const {
  return static_cast<uint64_t>((offset({sizes[0] - 1, sizes[1] - 1, sizes[2] - 1, sizes[3] - 1}) + 1) *
                               element_bytes());
}

bool Program::is_deterministic() const {
  return std::none_of(steps.begin(), steps.end(), [&](const Step& step) {
    const Tensor& y = tensors[static_cast<size_t>(step.result)];
    return step.kind == Step::Kind::multiply && y.place == Tensor::Place::array && y.type == kDnnFloat32;
  });
}

int64_t Program::workspace_bytes() const {
  constexpr int64_t kLeast = 256, kRows = 64, kColumns = 128;
  const auto is_reshape = [](const Step& step) { return step.kind == Step::Kind::reshape; };
  int64_t bytes = kLeast;
  for (const Step& step : steps) {  // gradients of keys that are shared, for each head of queries
    const Tensor& x = tensors[static_cast<size_t>(step.operands[0])];
    if (step.kind == Step::Kind::reduce && is_short(x.type)) bytes += x.elements() * x.element_bytes();
  }
  const bool backward = std::any_of(steps.begin(), steps.end(), is_reshape);
  if (!backward || !is_deterministic()) return bytes;
  const Index& scores =
      tensors[static_cast<size_t>(std::find_if(steps.begin(), steps.end(), is_reshape)->result)].sizes;
  return bytes + 2 * scores[0] * scores[1] * round_to(scores[2], kRows) * round_to(scores[3], kColumns);
}

bool Program::is_supported() const {
  constexpr int64_t kPiece = 8, kMost = 256;
  const auto products = std::count_if(steps.begin(), steps.end(),
                                      [](const Step& step) { return step.kind == Step::Kind::multiply; });
  if (products != 2 && products != 5) return false;
  for (const Step& step : steps) {
    if (step.kind != Step::Kind::multiply) continue;
    const Tensor& first = tensors[static_cast<size_t>(step.operands[0])];
    const int64_t head_size = first.sizes[3];
    return is_short(first.type) && head_size % kPiece == 0 && head_size <= kMost &&
           std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& t) {
             if (t.place != Tensor::Place::array || !is_short(t.type)) return true;
             return t.type == first.type &&
                    std::all_of(t.strides.begin(), t.strides.end(),
                                [&](int64_t stride) { return stride == 1 || stride % kPiece == 0; });
           });
  }
  return false;
}

int read_program(const Descriptor& graph, Program& program) {
  Reader reader(program);
  for (const Descriptor* const operation : graph.all<Descriptor*>(kDnnGraphOperations))
    if (const int wrong = reader.read(*operation)) return wrong;
  return kDnnSuccess;
}

void run(const Program& program, const std::vector<void*>& arrays, uint64_t turn) {
  Run run(program, arrays, turn);
  for (const Step& step : program.steps) run.step(step);
}

}  // namespace fake_dnn
