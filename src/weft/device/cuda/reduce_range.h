// Arithmetic of the reduction kernels: the work of one thread of many. nvcc compiles it for GPUs (reduce.cu),
// and any C++ compiler for tests, which compare it with device/reduce.h: both give the same bits.
//
// A thread takes packs of up to 16 bytes, as many packs apart as there are threads, and several of them at a
// time, so that several loads of each source are under way. It takes single elements where a buffer is not
// aligned to packs, at the end, and in tree order.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "device/float_format.h"

#if defined(__CUDACC__)
#define WEFT_ON_DEVICE __host__ __device__
#else
#define WEFT_ON_DEVICE
#endif

namespace weft::device::cuda {

/// Sources of one launch, at most: they are passed by value.
inline constexpr uint32_t kMaxSources = 120;

/// out[i] = op over sources of source[s][i], i < count.
struct ReduceArguments {
  void* out;
  uint64_t count;
  uint32_t sources;
  uint32_t divisor;  // of integers: what the result is divided by; of means: the sum of the weights
  uint32_t op;       // of all but means: Operator
  uint32_t tree;     // 1: a balanced binary tree over source numbers, else in turn
  const void* source[kMaxSources];
};

/// out[i] = the mean over sources of source[s][i], each with its weight.
struct MeanArguments {
  ReduceArguments reduce;
  uint32_t weight[kMaxSources];
};

/// out[i] = in[i] × scalar.
struct ScaleArguments {
  void* out;
  const void* in;
  uint64_t count;
  alignas(8) unsigned char scalar[8];  // one element
};

// ---- Element types

/// Integers, fp32 and fp64 are accumulated as they are, narrow floats in fp32.
template <typename T>
struct Whole {
  using Storage = T;
  static constexpr bool kNarrow = false;
};
template <typename Format>
struct Narrow : Format {
  using Storage = typename Format::Storage;
  static constexpr bool kNarrow = true;
};

enum class Operator : uint32_t { sum, prod, max, min, band, bor, bxor };  // device::Combiner

template <typename T>
struct FloatLimits;  // of fp32 and fp64: the bits of infinity and of the quiet NaN
template <>
struct FloatLimits<float> {
  using Bits = int32_t;
  static constexpr Bits kInfinity = kFloatInfinity, kNan = kFloatNan;
};
template <>
struct FloatLimits<double> {
  using Bits = int64_t;
  static constexpr Bits kInfinity = Bits{0x7ff} << 52, kNan = Bits{0xfff} << 51;
};

/// A float type's bits as signed integers: the largest magnitude that is no NaN, and the NaN.
template <typename Type, bool narrow = Type::kNarrow>
struct Extremes {
  using Int = std::make_signed_t<typename Type::Storage>;
  static constexpr Int kLargest = static_cast<Int>(Type::kOverflow), kNan = static_cast<Int>(Type::kNan);
};
template <typename Type>
struct Extremes<Type, false> {
  using Int = typename FloatLimits<typename Type::Storage>::Bits;
  static constexpr Int kLargest = FloatLimits<typename Type::Storage>::kInfinity,
                       kNan = FloatLimits<typename Type::Storage>::kNan;
};

// ---- Operators on one element

template <typename T>
WEFT_ALWAYS_INLINE T without_payload(T value) {
  return value == value ? value : bits_as<T>(FloatLimits<T>::kNan);
}

/// Max and min of floats by their bits: a NaN loses to any number, -0 is below +0.
template <typename Type, Operator op>
WEFT_ALWAYS_INLINE typename Type::Storage float_extreme(typename Type::Storage a, typename Type::Storage b) {
  using Int = typename Extremes<Type>::Int;
  constexpr Int mask =
      static_cast<Int>(static_cast<std::make_unsigned_t<Int>>(~std::make_unsigned_t<Int>{0}) >> 1);
  constexpr Int loser = op == Operator::max ? static_cast<Int>(~mask) : mask;
  const Int x = bits_as<Int>(a), y = bits_as<Int>(b);
  const Int ordered_x = static_cast<Int>(x & mask) > Extremes<Type>::kLargest ? loser
                        : x < 0                                               ? static_cast<Int>(x ^ mask)
                                                                              : x;
  const Int ordered_y = static_cast<Int>(y & mask) > Extremes<Type>::kLargest ? loser
                        : y < 0                                               ? static_cast<Int>(y ^ mask)
                                                                              : y;
  const bool first = op == Operator::max ? ordered_x > ordered_y : ordered_x < ordered_y;
  const Int ordered = first ? ordered_x : ordered_y;
  const Int bits = ordered < 0 ? static_cast<Int>(ordered ^ mask) : ordered;
  return bits_as<typename Type::Storage>(
      static_cast<Int>(bits & mask) > Extremes<Type>::kLargest ? Extremes<Type>::kNan : bits);
}

template <Operator op, typename T>
WEFT_ALWAYS_INLINE T bitwise(T a, T b) {
  return static_cast<T>(op == Operator::band ? a & b : op == Operator::bor ? a | b : a ^ b);
}

template <typename T, Operator op>
WEFT_ALWAYS_INLINE T arithmetic(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return without_payload<T>(op == Operator::sum ? a + b : a * b);
  } else {  // integers wrap
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(op == Operator::sum ? x + y : x * y);
  }
}

/// How elements of a type pass through an operator: unpacked into accumulators, combined, packed again.
template <typename Type, Operator op>
struct Accumulation {
  using Storage = typename Type::Storage;
  static constexpr bool kArithmetic = op == Operator::sum || op == Operator::prod;
  static constexpr bool kWidens = Type::kNarrow && kArithmetic;
  static constexpr bool kFloat = Type::kNarrow || std::is_floating_point_v<Storage>;
  using Value = std::conditional_t<kWidens, float, Storage>;

  WEFT_ALWAYS_INLINE static Value unpack(Storage element) {
    if constexpr (kWidens) return decode_float<Type, float, int32_t>(element);
    else return element;
  }
  WEFT_ALWAYS_INLINE static Value combine(Value a, Value b) {
    if constexpr (kArithmetic) return arithmetic<Value, op>(a, b);
    else if constexpr (kFloat) return float_extreme<Type, op>(a, b);
    else if constexpr (op >= Operator::band) return bitwise<op>(a, b);
    else return op == Operator::max ? (a > b ? a : b) : (a < b ? a : b);
  }
  WEFT_ALWAYS_INLINE static Storage pack(Value value, uint32_t divisor) {
    if constexpr (kWidens) {
      return static_cast<Storage>(encode_float<Type, float, int32_t>(value));
    } else if constexpr (!kArithmetic || kFloat) {
      return value;
    } else if constexpr (std::is_signed_v<Value>) {
      return divisor > 1 ? static_cast<Value>(static_cast<int64_t>(value) / static_cast<int64_t>(divisor))
                         : value;
    } else {
      return divisor > 1 ? static_cast<Value>(static_cast<uint64_t>(value) / divisor) : value;
    }
  }
};

// ---- Packs

/// `width` elements side by side, loaded and stored at once.
template <typename T, int width>
struct alignas(width * sizeof(T)) Elements {
  T at[width];
  WEFT_ALWAYS_INLINE static Elements load(const void* array, uint64_t first) {
    return *reinterpret_cast<const Elements*>(static_cast<const T*>(array) + first);
  }
  WEFT_ALWAYS_INLINE void store(void* array, uint64_t first) const {
    *reinterpret_cast<Elements*>(static_cast<T*>(array) + first) = *this;
  }
};

/// 8 elements of the short types: more would make long code, and hardly more speed.
template <typename T>
constexpr int kPackWidth = sizeof(T) == 1 ? 8 : 16 / sizeof(T);

/// What a thread combines at a time: `packs` packs, as far apart as the threads' packs reach.
template <typename R, int packs>
struct Several {
  typename R::Values at[packs];
};

/// The packs of one source as they lie in memory. All loads come before the first use.
template <typename R, int packs>
struct Loaded {
  typename R::Raw at[packs];

  template <typename Arguments>
  WEFT_ALWAYS_INLINE void load(const Arguments& a, uint32_t s, uint64_t first, uint64_t apart) {
    for (int p = 0; p < packs; ++p) at[p] = R::load(a, s, first + static_cast<uint64_t>(p) * apart);
  }
};

/// Combines the elements of `packs` packs of the sources, one source after the other. The next source's loads
/// are under way while one is combined.
template <typename R, int packs, typename Arguments>
WEFT_ALWAYS_INLINE Several<R, packs> collect_in_turn(const Arguments& a, uint32_t sources, uint64_t first,
                                                     uint64_t apart) {
  Several<R, packs> sums;
  Loaded<R, packs> loaded, next;
  loaded.load(a, 0, first, apart);
  if (sources > 1) next.load(a, 1, first, apart);
  for (int p = 0; p < packs; ++p) sums.at[p] = R::unpack(a, 0, loaded.at[p]);
  for (uint32_t s = 1; s < sources; ++s) {
    loaded = next;
    if (s + 1 < sources) next.load(a, s + 1, first, apart);
    for (int p = 0; p < packs; ++p) R::combine(sums.at[p], R::unpack(a, s, loaded.at[p]));
  }
  return sums;
}

/// The same over the tree whose lower half is the largest power of two below the number of sources. Partial
/// results are merged as a binary counter carries, and at the end from the youngest to the oldest.
template <typename R, typename Arguments>
WEFT_ALWAYS_INLINE typename R::Values collect_by_tree(const Arguments& a, uint32_t sources, uint64_t first) {
  typename R::Values partial[8];  // kMaxSources < 2^7
  int depth = 0;
  for (uint32_t s = 0; s < sources; ++s) {
    auto sum = R::unpack(a, s, R::load(a, s, first));
    for (uint32_t carry = s; carry & 1; carry >>= 1) {
      auto older = partial[--depth];
      R::combine(older, sum);
      sum = older;
    }
    partial[depth++] = sum;
  }
  auto sum = partial[--depth];
  while (depth > 0) {
    auto older = partial[--depth];
    R::combine(older, sum);
    sum = older;
  }
  return sum;
}

template <typename Type, Operator op, int width>
struct Reducer {
  using A = Accumulation<Type, op>;
  using Raw = Elements<typename Type::Storage, width>;
  struct Values {
    typename A::Value at[width];
  };
  // At a time. Elements of a byte take a register each, and ptxas gives doubles half of the registers: with
  // more packs they spill.
  static constexpr int kPacks =
      sizeof(typename Type::Storage) == 1 || std::is_same_v<typename Type::Storage, double> ? 2 : 4;

  WEFT_ALWAYS_INLINE static Raw load(const ReduceArguments& a, uint32_t s, uint64_t first) {
    return Raw::load(a.source[s], first);
  }
  WEFT_ALWAYS_INLINE static Values unpack(const ReduceArguments&, uint32_t, const Raw& raw) {
    Values values;
    for (int i = 0; i < width; ++i) values.at[i] = A::unpack(raw.at[i]);
    return values;
  }
  WEFT_ALWAYS_INLINE static void combine(Values& into, const Values& more) {
    for (int i = 0; i < width; ++i) into.at[i] = A::combine(into.at[i], more.at[i]);
  }
  WEFT_ALWAYS_INLINE static void store(const ReduceArguments& a, uint64_t first, const Values& values) {
    Raw result;
    for (int i = 0; i < width; ++i) result.at[i] = A::pack(values.at[i], a.divisor);
    result.store(a.out, first);
  }

  template <int packs>
  static WEFT_ON_DEVICE void in_turn(const ReduceArguments& a, uint64_t first, uint64_t apart) {
    const auto sums = collect_in_turn<Reducer, packs>(a, a.sources, first, apart);
    for (int p = 0; p < packs; ++p) store(a, first + static_cast<uint64_t>(p) * apart, sums.at[p]);
  }
  static WEFT_ON_DEVICE void by_tree(const ReduceArguments& a, uint64_t first) {
    store(a, first, collect_by_tree<Reducer>(a, a.sources, first));
  }
};

/// Weighted means of floats, as device/kernel_mean.h computes them. The sum is divided by the sum of the
/// weights, and the quotient is clamped between the least and the greatest operand. A sum that overflows is
/// computed again from operands that are scaled down.
template <typename Type, int width>
struct Means {
  using A = Accumulation<Type, Operator::sum>;
  using Value = typename A::Value;
  static constexpr int kPacks = 2;  // at a time: each has three accumulators

  template <bool scaled>
  struct Sums {
    static constexpr Value kScale = scaled ? Value{1} / Value(uint64_t{1} << 33) : Value{1};
    using Raw = Elements<typename Type::Storage, width>;
    struct Values {
      Value sum[width], least[width], most[width];
    };

    WEFT_ALWAYS_INLINE static Raw load(const MeanArguments& a, uint32_t s, uint64_t first) {
      return Raw::load(a.reduce.source[s], first);
    }
    WEFT_ALWAYS_INLINE static Values unpack(const MeanArguments& a, uint32_t s, const Raw& raw) {
      const Value weight = static_cast<Value>(a.weight[s]) * kScale;
      Values values;
      for (int i = 0; i < width; ++i) {
        values.least[i] = values.most[i] = A::unpack(raw.at[i]);
        values.sum[i] = values.least[i] * weight;
      }
      return values;
    }
    WEFT_ALWAYS_INLINE static void combine(Values& into, const Values& more) {
      for (int i = 0; i < width; ++i) {
        into.sum[i] = into.sum[i] + more.sum[i];
        into.least[i] = more.least[i] < into.least[i] ? more.least[i] : into.least[i];
        into.most[i] = more.most[i] > into.most[i] ? more.most[i] : into.most[i];
      }
    }
  };

  WEFT_ALWAYS_INLINE static bool finite(Value value) { return value - value == 0; }

  template <bool tree, bool scaled>
  WEFT_ALWAYS_INLINE static auto collect(const MeanArguments& a, uint64_t first) {
    if constexpr (tree) return collect_by_tree<Sums<scaled>>(a, a.reduce.sources, first);
    else return collect_in_turn<Sums<scaled>, 1>(a, a.reduce.sources, first, 0).at[0];
  }

  template <bool tree>
  WEFT_ALWAYS_INLINE static void store(const MeanArguments& a, uint64_t first,
                                       const typename Sums<false>::Values& values) {
    const Value divisor = static_cast<Value>(a.reduce.divisor);
    Value means[width];
    bool all_finite = true;
    for (int i = 0; i < width; ++i) {
      means[i] = values.sum[i] / divisor;
      all_finite = all_finite && finite(values.sum[i]);
    }
    if (!all_finite) {
      const auto again = collect<tree, true>(a, first);
      for (int i = 0; i < width; ++i)
        if (!finite(values.sum[i])) means[i] = again.sum[i] / divisor / Sums<true>::kScale;
    }
    Elements<typename Type::Storage, width> result;
    for (int i = 0; i < width; ++i) {  // a NaN stays: no comparison is true of it
      Value value = means[i] < values.least[i] ? values.least[i] : means[i];
      value = value > values.most[i] ? values.most[i] : value;
      if constexpr (Type::kNarrow) result.at[i] = A::pack(value, 1);
      else result.at[i] = without_payload<Value>(value);
    }
    result.store(a.reduce.out, first);
  }

  template <int packs>
  static WEFT_ON_DEVICE void in_turn(const MeanArguments& a, uint64_t first, uint64_t apart) {
    const auto sums = collect_in_turn<Sums<false>, packs>(a, a.reduce.sources, first, apart);
    for (int p = 0; p < packs; ++p) store<false>(a, first + static_cast<uint64_t>(p) * apart, sums.at[p]);
  }
  static WEFT_ON_DEVICE void by_tree(const MeanArguments& a, uint64_t first) {
    store<true>(a, first, collect<true, false>(a, first));
  }
};

template <typename Type, Operator op>
struct Reducers {
  template <int width>
  using Of = Reducer<Type, op, width>;
};
template <typename Type>
struct MeansOf {
  template <int width>
  using Of = Means<Type, width>;
};

// ---- What a thread does

/// Thread number `thread` of `threads` of a reduction; P<width> takes packs of `width` elements.
template <typename Storage, bool ordered, template <int> class P, typename Arguments>
WEFT_ON_DEVICE void run_thread(const Arguments& arguments, const ReduceArguments& a, uint64_t thread,
                               uint64_t threads) {
  constexpr int width = kPackWidth<Storage>;
  if (ordered && a.tree) {
    if constexpr (ordered)
      for (uint64_t i = thread; i < a.count; i += threads) P<1>::by_tree(arguments, i);
    return;
  }
  uintptr_t addresses = reinterpret_cast<uintptr_t>(a.out);
  for (uint32_t s = 0; s < a.sources; ++s) addresses |= reinterpret_cast<uintptr_t>(a.source[s]);
  const uint64_t in_packs = addresses % (width * sizeof(Storage)) == 0 ? a.count / width * width : 0;
  constexpr int packs = P<width>::kPacks;
  const uint64_t apart = threads * width;
  uint64_t i = thread * width;
  for (; i + (packs - 1) * apart < in_packs; i += packs * apart)
    P<width>::template in_turn<packs>(arguments, i, apart);
  for (; i < in_packs; i += apart) P<width>::template in_turn<1>(arguments, i, apart);
  for (i = in_packs + thread; i < a.count; i += threads) P<1>::template in_turn<1>(arguments, i, 0);
}

template <typename Type, Operator op>
WEFT_ON_DEVICE void reduce_with(const ReduceArguments& a, uint64_t thread, uint64_t threads) {
  constexpr bool ordered = Accumulation<Type, op>::kArithmetic && Accumulation<Type, op>::kFloat;
  run_thread<typename Type::Storage, ordered, Reducers<Type, op>::template Of>(a, a, thread, threads);
}

/// Means of a float type have kernels of their own, since they take twice the registers of sums.
template <typename Type>
WEFT_ON_DEVICE void mean_range(const MeanArguments& a, uint64_t thread, uint64_t threads) {
  run_thread<typename Type::Storage, true, MeansOf<Type>::template Of>(a, a.reduce, thread, threads);
}

template <typename Type>
WEFT_ON_DEVICE void reduce_range(const ReduceArguments& a, uint64_t thread, uint64_t threads) {
  if constexpr (!Accumulation<Type, Operator::sum>::kFloat) {
    switch (static_cast<Operator>(a.op)) {
      case Operator::band: return reduce_with<Type, Operator::band>(a, thread, threads);
      case Operator::bor: return reduce_with<Type, Operator::bor>(a, thread, threads);
      case Operator::bxor: return reduce_with<Type, Operator::bxor>(a, thread, threads);
      default: break;
    }
  }
  switch (static_cast<Operator>(a.op)) {
    case Operator::sum: return reduce_with<Type, Operator::sum>(a, thread, threads);
    case Operator::prod: return reduce_with<Type, Operator::prod>(a, thread, threads);
    case Operator::max: return reduce_with<Type, Operator::max>(a, thread, threads);
    case Operator::min: return reduce_with<Type, Operator::min>(a, thread, threads);
    default: return;  // bitwise operators, which floats do not have
  }
}

template <typename Type>
WEFT_ON_DEVICE void scale_range(const ScaleArguments& a, uint64_t thread, uint64_t threads) {
  using Storage = typename Type::Storage;
  using A = Accumulation<Type, Operator::prod>;
  Storage scalar;
  memcpy(&scalar, a.scalar, sizeof scalar);
  const Storage* in = static_cast<const Storage*>(a.in);
  Storage* out = static_cast<Storage*>(a.out);
  for (uint64_t i = thread; i < a.count; i += threads)
    out[i] = A::pack(A::combine(A::unpack(in[i]), A::unpack(scalar)), 1);
}

/// Calls for_type(name, Type) for every element type.
#define WEFT_EACH_KERNEL_TYPE(for_type)                                                                   \
  for_type(int8, Whole<int8_t>) for_type(uint8, Whole<uint8_t>) for_type(int32, Whole<int32_t>)           \
      for_type(uint32, Whole<uint32_t>) for_type(int64, Whole<int64_t>) for_type(uint64, Whole<uint64_t>) \
          WEFT_EACH_FLOAT_KERNEL_TYPE(for_type)

#define WEFT_EACH_FLOAT_KERNEL_TYPE(for_type)                                           \
  for_type(float16, Narrow<weft::device::Half>) for_type(float32, Whole<float>)         \
      for_type(float64, Whole<double>) for_type(bfloat16, Narrow<weft::device::Bfloat>) \
          for_type(float8e4m3, Narrow<weft::device::E4m3>) for_type(float8e5m2, Narrow<weft::device::E5m2>)

}  // namespace weft::device::cuda
