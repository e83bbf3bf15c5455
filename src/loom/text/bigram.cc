#include "text/bigram.h"

#include <cmath>

namespace loom::text {

void BigramModel::add(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char byte = static_cast<unsigned char>(text[i]);
    ++alone_[byte];
    ++total_;
    if (i == 0) continue;
    const unsigned char previous = static_cast<unsigned char>(text[i - 1]);
    ++followed_[previous];
    if (pairs_[previous * 256u + byte]++ == 0) ++variety_[previous];
  }
}

double BigramModel::probability_alone(unsigned char byte) const {
  return (static_cast<double>(alone_[byte]) + 1) / (static_cast<double>(total_) + 256);
}

double BigramModel::probability(unsigned char previous, unsigned char next) const {
  const double alone = probability_alone(next);
  if (followed_[previous] == 0) return alone;
  const double variety = static_cast<double>(variety_[previous]);
  return (static_cast<double>(pairs_[previous * 256u + next]) + variety * alone) /
         (static_cast<double>(followed_[previous]) + variety);
}

Result<double> BigramModel::cross_entropy(std::string_view text) const {
  if (text.size() < 2) {
    return fail(Code::invalid_argument, "{} bytes to predict each from the one before, must be at least 2",
                text.size());
  }
  double sum = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    sum -=
        std::log(probability(static_cast<unsigned char>(text[i - 1]), static_cast<unsigned char>(text[i])));
  }
  return sum / static_cast<double>(text.size() - 1);
}

}  // namespace loom::text
