#include "engine/failure/departures.h"

namespace weft::engine {
namespace {

// … and no longer than this.
constexpr int64_t kLongestGraceNs = 1'000'000'000;

}  // namespace

void Departures::add(int rank, const Status& why, int64_t now_ns, uint64_t events) {
  all_.push_back({rank, why, now_ns + kGraceNs, now_ns + kLongestGraceNs, events});
}

bool Departures::grace_is_over(Departure& departure, int64_t now_ns, uint64_t events) {
  if (now_ns < departure.look_ns) return false;
  if (now_ns >= departure.latest_ns || departure.events == events) return true;
  departure.events = events;
  departure.look_ns = now_ns + kGraceNs;
  return false;
}

std::vector<Departures::Departure> Departures::due(int64_t now_ns, uint64_t events) {
  std::vector<Departure> over;
  for (Departure& departure : all_) {
    if (grace_is_over(departure, now_ns, events)) over.push_back(departure);
  }
  return over;
}

std::vector<Departures::Departure> Departures::take_due(int64_t now_ns, uint64_t events) {
  std::vector<Departure> over;
  std::erase_if(all_, [&](Departure& departure) {
    if (!grace_is_over(departure, now_ns, events)) return false;
    over.push_back(departure);
    return true;
  });
  return over;
}

}  // namespace weft::engine
