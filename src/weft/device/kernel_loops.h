// The kernels of one instruction set: operators on lanes, and the loop that runs them over memory. Included
// by kernels_baseline.cc, kernels_avx2.cc and kernels_avx512.cc, each compiled with its own flags;
// make_kernels() is their table.
//
// max and min are fmax and fmin, as in NCCL: a NaN loses to any number, and only NaNs make a NaN. -0 is below
// +0, so that the order of operands never shows. Floats are compared as integers: with the magnitude's bits
// flipped where the sign is set, two's complement orders them as their values are ordered.
#pragma once

#include <cstring>
#include <initializer_list>

#include "device/kernel_mean.h"
#include "device/kernel_vec.h"
#include "device/kernels.h"

namespace weft::device {
namespace {

// ---- Element types: how a DataType is stored, and which integers its bits are

template <typename T>
struct Plain {  // integers, fp32, fp64: accumulated as they are
  using Storage = T;
};
template <typename Type>
constexpr bool kIsNarrow = false;
template <typename Bits, int e, int m, bool ieee>
constexpr bool kIsNarrow<FloatFormat<Bits, e, m, ieee>> = true;

/// A float type's bits as signed integers: where its infinity and its NaN are.
template <typename Type>
struct SignedBits {
  using Int = std::make_signed_t<typename Type::Storage>;
  // e4m3 has no infinity: what lies above the largest finite value is NaN.
  static constexpr Int kLargest = Type::kOverflow, kNan = Type::kNan;
};
template <typename T>
struct SignedBits<Plain<T>> {
  using Int = typename FloatBits<T>::Int;
  static constexpr Int kLargest = FloatBits<T>::kInfinity, kNan = FloatBits<T>::kNan;
};

// ---- Operators on lanes

/// In the type itself: integers wrap, so they are taken as unsigned.
template <Combiner op, typename T, size_t lanes>
WEFT_ALWAYS_INLINE Vec<T, lanes> arithmetic(Vec<T, lanes> a, Vec<T, lanes> b) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical<T, lanes>(op == Combiner::sum ? a + b : a * b);
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    const auto x = bits_as<Vec<Unsigned, lanes>>(a), y = bits_as<Vec<Unsigned, lanes>>(b);
    return bits_as<Vec<T, lanes>>(static_cast<Vec<Unsigned, lanes>>(op == Combiner::sum    ? x + y
                                                                    : op == Combiner::prod ? x * y
                                                                    : op == Combiner::band ? x & y
                                                                    : op == Combiner::bor  ? x | y
                                                                                           : x ^ y));
  }
}

template <Combiner op, typename Values>
WEFT_ALWAYS_INLINE Values extreme(Values a, Values b) {
  if constexpr (op == Combiner::max) return a > b ? a : b;
  return a < b ? a : b;
}

/// A float's bits as an integer that is ordered like its value; NaN where it loses.
template <Combiner op, typename Type, size_t lanes, typename Ints>
WEFT_ALWAYS_INLINE Ints ordered(Ints bits) {
  using Int = typename SignedBits<Type>::Int;
  constexpr Int magnitude_mask =
      std::is_same_v<Int, int64_t> ? INT64_MAX : (uint64_t{1} << (8 * sizeof(Int) - 1)) - 1;
  constexpr Int loser = op == Combiner::max ? ~magnitude_mask : magnitude_mask;
  const Ints key = bits < Int{0} ? static_cast<Ints>(bits ^ magnitude_mask) : bits;
  return (bits & magnitude_mask) > SignedBits<Type>::kLargest ? all<Int, lanes>(loser) : key;
}

template <Combiner op, typename Type, size_t lanes, typename Values>
WEFT_ALWAYS_INLINE Values float_extreme(Values a, Values b) {
  using Int = typename SignedBits<Type>::Int;
  using Ints = Vec<Int, lanes>;
  constexpr Int magnitude_mask =
      std::is_same_v<Int, int64_t> ? INT64_MAX : (uint64_t{1} << (8 * sizeof(Int) - 1)) - 1;
  const Ints key =
      extreme<op>(ordered<op, Type, lanes>(bits_as<Ints>(a)), ordered<op, Type, lanes>(bits_as<Ints>(b)));
  const Ints bits = key < Int{0} ? static_cast<Ints>(key ^ magnitude_mask) : key;
  return bits_as<Values>(
      (bits & magnitude_mask) > SignedBits<Type>::kLargest ? all<Int, lanes>(SignedBits<Type>::kNan) : bits);
}

// ---- What a loop does with the lanes it has loaded

template <typename Type, Combiner op>
struct CombineLanes {
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Values at(Values a, Values b) const {
    using T = typename Type::Storage;
    if constexpr (op == Combiner::max || op == Combiner::min) {
      if constexpr (kIsNarrow<Type> || std::is_floating_point_v<T>)
        return float_extreme<op, Type, lanes>(a, b);
      else return extreme<op>(a, b);
    } else if constexpr (kIsNarrow<Type>) {
      const auto x = decode<Type, lanes>(a), y = decode<Type, lanes>(b);
      return encode<Type, lanes>(op == Combiner::sum ? x + y : x * y);
    } else {
      return arithmetic<op, T, lanes>(a, b);
    }
  }
};

/// The first two sources of an fp32 accumulation.
template <typename Format, Combiner op>
struct OpenLanes {
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Vec<float, lanes> at(Values a, Values b) const {
    return arithmetic<op, float, lanes>(decode<Format, lanes>(a), decode<Format, lanes>(b));
  }
};

/// A further source.
template <typename Format, Combiner op>
struct AddLanes {
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Vec<float, lanes> at(Vec<float, lanes> sum, Values b) const {
    return arithmetic<op, float, lanes>(sum, decode<Format, lanes>(b));
  }
};

template <typename Format>
struct WidenLanes {
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Vec<float, lanes> at(Values a) const {
    return decode<Format, lanes>(a);
  }
};

/// The last step of an fp32 accumulation.
template <typename Format>
struct RoundLanes {
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Vec<typename Format::Storage, lanes> at(Values a) const {
    return encode<Format, lanes>(a);
  }
};

/// 8- and 32-bit integers divide as floats that are wide enough for the truncated quotient to be exact: a
/// quotient that is no integer is further from the next one than the float's rounding can carry it.
template <typename T>
struct DivideIntegerLanes {
  using Float = std::conditional_t<sizeof(T) == 1, float, double>;
  Float divisor;
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Values at(Values a) const {
    if constexpr (sizeof(T) == 1) return float_to_byte<T, lanes>(byte_to_float<T, lanes>(a) / divisor);
    else return convert<T, lanes>(convert<Float, lanes>(a) / divisor);
  }
};

template <typename T>
struct DivideLongLanes {
  T divisor;
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Values at(Values a) const {
    return a / divisor;
  }
};

template <typename Type>
struct ScaleLanes {
  typename Type::Storage scalar;
  template <size_t lanes, typename Values>
  WEFT_ALWAYS_INLINE Values at(Values a) const {
    return CombineLanes<Type, Combiner::prod>().template at<lanes>(
        a, all<typename Type::Storage, lanes>(scalar));
  }
};

// ---- The loop

constexpr size_t largest(std::initializer_list<size_t> sizes) {
  size_t result = 0;
  for (const size_t size : sizes) result = size > result ? size : result;
  return result;
}

/// Narrow elements are converted 8 at a time where the CPU can convert 8 halves; fewer are filled up with
/// zeros.
#if defined(__F16C__)
constexpr size_t kFewestNarrow = 8;
#else
constexpr size_t kFewestNarrow = 0;  // never: down to one
#endif

/// A block of fp32 accumulators is loaded and stored whole, beyond `count`: see kernels.h.
template <size_t lanes, typename T>
WEFT_ALWAYS_INLINE Vec<T, lanes> load_narrow(const T* from, size_t count) {
  if constexpr (sizeof(T) == 4) return load<lanes>(from);
  else return load_part<lanes>(from, count);
}
template <size_t lanes, typename T>
WEFT_ALWAYS_INLINE void store_narrow(T* to, size_t count, Vec<T, lanes> values) {
  if constexpr (sizeof(T) == 4) store(to, values);
  else store_part<lanes>(to, count, values);
}

/// count < 2 × lanes, but not 0: two steps of the largest width that fits, overlapping. Both are computed
/// before either is stored, since `out` may be an input.
template <size_t lanes, bool narrow, typename Step, typename Out, typename... In>
WEFT_ALWAYS_INLINE void run_few(size_t count, const Step& step, Out* out, const In*... in) {
  if (lanes == 1 || count >= lanes) {
    const size_t last = count - lanes;
    const auto at_first = step.template at<lanes>(load<lanes>(in)...);
    const auto at_last = step.template at<lanes>(load<lanes>(in + last)...);
    store(out, at_first);
    store(out + last, at_last);
  } else if constexpr (narrow && lanes == kFewestNarrow) {
    store_narrow<lanes>(out, count, step.template at<lanes>(load_narrow<lanes>(in, count)...));
  } else if constexpr (lanes > 1) {
    run_few<lanes / 2, narrow>(count, step, out, in...);
  }
}

/// out[i] = step(in[i]…). Elements pass through the same lanes' arithmetic wherever they lie: neither
/// alignment nor how a range is cut shows in the bits. `Widest` is the largest type that the step computes
/// in.
template <typename Widest, typename Step, typename Out, typename... In>
WEFT_ALWAYS_INLINE void run(size_t count, const Step& step, Out* out, const In*... in) {
  constexpr size_t lanes = kVectorBytes / largest({sizeof(Widest), sizeof(Out), sizeof(In)...});
  constexpr bool narrow = sizeof(Widest) == 4 && (sizeof(Out) < 4 || ((sizeof(In) < 4) || ...));
  constexpr size_t unrolled = 4;
  if (count < 2 * lanes) return run_few<lanes, narrow>(count, step, out, in...);
  // The last step overlaps the one before it; it is computed first, since `out` may be an input.
  const auto at_last = step.template at<lanes>(load<lanes>(in + (count - lanes))...);
  size_t i = 0;
  for (; i + unrolled * lanes <= count; i += unrolled * lanes) {
    Vec<Out, lanes> results[unrolled];
    for (size_t u = 0; u < unrolled; ++u)
      results[u] = step.template at<lanes>(load<lanes>(in + i + u * lanes)...);
    for (size_t u = 0; u < unrolled; ++u) store(out + i + u * lanes, results[u]);
  }
  for (; i + lanes <= count; i += lanes) store(out + i, step.template at<lanes>(load<lanes>(in + i)...));
  store(out + (count - lanes), at_last);
}

// ---- Kernels: typed loops behind the table's untyped signatures

template <typename Type>
using WidestOf = std::conditional_t<kIsNarrow<Type>, float, typename Type::Storage>;

template <typename Type, Combiner op>
void combine(void* out, const void* a, const void* b, size_t count) {
  using T = typename Type::Storage;
  constexpr bool by_bits = op == Combiner::max || op == Combiner::min;
  run<std::conditional_t<by_bits, T, WidestOf<Type>>>(count, CombineLanes<Type, op>(), static_cast<T*>(out),
                                                      static_cast<const T*>(a), static_cast<const T*>(b));
}

template <typename Format, Combiner op>
void open(void* out, const void* a, const void* b, size_t count) {
  using T = typename Format::Storage;
  run<float>(count, OpenLanes<Format, op>(), static_cast<float*>(out), static_cast<const T*>(a),
             static_cast<const T*>(b));
}

template <typename Format, Combiner op>
void add(void* out, const void* sum, const void* b, size_t count) {
  run<float>(count, AddLanes<Format, op>(), static_cast<float*>(out), static_cast<const float*>(sum),
             static_cast<const typename Format::Storage*>(b));
}

template <typename Format>
void widen(void* out, const void* in, size_t count) {
  run<float>(count, WidenLanes<Format>(), static_cast<float*>(out),
             static_cast<const typename Format::Storage*>(in));
}

template <typename Format>
void round(void* out, const void* in, size_t count) {
  run<float>(count, RoundLanes<Format>(), static_cast<typename Format::Storage*>(out),
             static_cast<const float*>(in));
}

template <typename T>
void divide(void* out, const void* in, size_t count, uint32_t divisor) {
  const auto with = [&](auto widest, const auto& step) __attribute__((always_inline)) {
    run<decltype(widest)>(count, step, static_cast<T*>(out), static_cast<const T*>(in));
  };
  if constexpr (sizeof(T) == 8) {
    with(T{}, DivideLongLanes<T>{static_cast<T>(divisor)});
  } else {
    using Float = typename DivideIntegerLanes<T>::Float;
    with(Float{}, DivideIntegerLanes<T>{static_cast<Float>(divisor)});
  }
}

template <typename Type>
void scale(void* out, const void* in, const void* scalar, size_t count) {
  using T = typename Type::Storage;
  T factor;  // it need not be aligned
  std::memcpy(&factor, scalar, sizeof factor);
  run<WidestOf<Type>>(count, ScaleLanes<Type>{factor}, static_cast<T*>(out), static_cast<const T*>(in));
}

// ---- Streaming

#if defined(__x86_64__)
WEFT_ALWAYS_INLINE void stream_lanes(char* to, Vec<char, kVectorBytes> values) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits_as<__m512i>(values));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits_as<__m256i>(values));
#else
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits_as<__m128i>(values));
#endif
}

void stream(void* out, const void* in, size_t bytes) {
  constexpr size_t line = 64;
  auto* to = static_cast<char*>(out);
  auto* from = static_cast<const char*>(in);
  // A line that is written in part cannot go around the cache.
  const size_t head = -reinterpret_cast<uintptr_t>(to) % line;
  if (head >= bytes) {
    __builtin_memcpy(to, from, bytes);
    return;
  }
  __builtin_memcpy(to, from, head);
  size_t i = head;
  for (; i + line <= bytes; i += line) {
    for (size_t v = 0; v < line; v += kVectorBytes)
      stream_lanes(to + i + v, load<kVectorBytes>(from + i + v));
  }
  __builtin_memcpy(to + i, from + i, bytes - i);
}

void stream_fence() { _mm_sfence(); }
#endif

// ---- The table

template <typename Type>
constexpr void fill_integers(Kernels& table, DataType type) {
  const int t = static_cast<int>(type);
  table.combine[t][static_cast<int>(Combiner::band)] = combine<Type, Combiner::band>;
  table.combine[t][static_cast<int>(Combiner::bor)] = combine<Type, Combiner::bor>;
  table.combine[t][static_cast<int>(Combiner::bxor)] = combine<Type, Combiner::bxor>;
  table.divide[t] = divide<typename Type::Storage>;
}

template <typename Type>
constexpr void fill(Kernels& table, DataType type) {
  const int t = static_cast<int>(type);
  table.combine[t][static_cast<int>(Combiner::sum)] = combine<Type, Combiner::sum>;
  table.combine[t][static_cast<int>(Combiner::prod)] = combine<Type, Combiner::prod>;
  table.combine[t][static_cast<int>(Combiner::max)] = combine<Type, Combiner::max>;
  table.combine[t][static_cast<int>(Combiner::min)] = combine<Type, Combiner::min>;
  table.scale[t] = scale<Type>;
  if constexpr (kIsNarrow<Type> || std::is_floating_point_v<typename Type::Storage>)
    table.mean[t] = MeanOf<Type>::run;
  else fill_integers<Type>(table, type);
  if constexpr (kIsNarrow<Type>) {
    table.open[t][static_cast<int>(Combiner::sum)] = open<Type, Combiner::sum>;
    table.open[t][static_cast<int>(Combiner::prod)] = open<Type, Combiner::prod>;
    table.add[t][static_cast<int>(Combiner::sum)] = add<Type, Combiner::sum>;
    table.add[t][static_cast<int>(Combiner::prod)] = add<Type, Combiner::prod>;
    table.widen[t] = widen<Type>;
    table.round[t] = round<Type>;
  }
}

constexpr Kernels make_kernels(const char* name) {
  Kernels table{};
  table.name = name;
  fill<Plain<int8_t>>(table, DataType::int8);
  fill<Plain<uint8_t>>(table, DataType::uint8);
  fill<Plain<int32_t>>(table, DataType::int32);
  fill<Plain<uint32_t>>(table, DataType::uint32);
  fill<Plain<int64_t>>(table, DataType::int64);
  fill<Plain<uint64_t>>(table, DataType::uint64);
  fill<Half>(table, DataType::float16);
  fill<Plain<float>>(table, DataType::float32);
  fill<Plain<double>>(table, DataType::float64);
  fill<Bfloat>(table, DataType::bfloat16);
  fill<E4m3>(table, DataType::float8e4m3);
  fill<E5m2>(table, DataType::float8e5m2);
#if defined(__x86_64__)
  table.stream = stream;
  table.stream_fence = stream_fence;
#endif
  return table;
}

}  // namespace
}  // namespace weft::device
