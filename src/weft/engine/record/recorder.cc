#include "engine/record/recorder.h"

namespace weft::engine {
namespace {

/// Both ends describe a put by its elements; one of none is a signal.
std::string describe_put(const Record& put) {
  const bool sends = put.collective == plan::Collective::send;
  const std::string what =
      put.count > 0 ? fmt::format("Put of {} {}", put.count, device::name_of(put.type)) : "Signal";
  return fmt::format("{} {} rank {}", what, sends ? "to" : "from", put.root);
}

}  // namespace

std::string Record::describe() const {
  using plan::Collective;
  if (purpose == Purpose::split) return "Split";
  if (purpose == Purpose::grow) return "Grow";
  if (purpose == Purpose::window) return "WindowRegister";
  if (purpose == Purpose::wait) return "WaitSignal";
  if (purpose == Purpose::put) return describe_put(*this);
  if (uneven && collective == Collective::all_to_all)
    return fmt::format("{}V of {}", plan::name_of(collective), device::name_of(type));
  std::string text = fmt::format("{}{} of {} {}", plan::name_of(collective), uneven ? "V" : "", count,
                                 device::name_of(type));
  if (plan::reduces(collective))
    text += fmt::format(" ({}{})", device::name_of(op), strict ? ", strict order" : "");
  switch (collective) {
    case Collective::all_to_all: text += in_place ? " in place" : ""; break;
    case Collective::broadcast:
    case Collective::scatter: text += fmt::format(" from root {}", root); break;
    case Collective::reduce:
    case Collective::gather: text += fmt::format(" to root {}", root); break;
    case Collective::send: text += fmt::format(" to rank {}", root); break;
    case Collective::recv: text += fmt::format(" from rank {}", root); break;
    default: break;
  }
  return text;
}

std::vector<Record> Recorder::snapshot() const {
  std::vector<Record> records;
  const uint64_t kept = taken_ < ring_.size() ? taken_ : ring_.size();
  for (uint64_t i = taken_ - kept; i < taken_; ++i) records.push_back(ring_[i % ring_.size()]);
  return records;
}

}  // namespace weft::engine
