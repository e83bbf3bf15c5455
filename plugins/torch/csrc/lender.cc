#include "membership.h"
#include "work.h"

namespace weft_torch {

namespace {

std::mutex process_mutex;
std::map<int, std::weak_ptr<Lender>> process_lenders;  // guarded by process_mutex; by rank

// FNV-1a.
uint64_t hash(const std::string& text) {
  uint64_t made = 0xcbf29ce484222325;
  for (const unsigned char each : text) made = (made ^ each) * 0x100000001b3;
  return made;
}

}  // namespace

std::shared_ptr<Lender> Lender::of_the_process(int rank) {
  const std::lock_guard<std::mutex> lock(process_mutex);
  auto found = process_lenders.find(rank);
  return found == process_lenders.end() ? nullptr : found->second.lock();
}

void Lender::set_of_the_process(const std::shared_ptr<Lender>& lender) {
  const std::lock_guard<std::mutex> lock(process_mutex);
  process_lenders[lender->rank_] = lender;
}

void Lender::lend(weftComm_t comm, int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  (device == WEFT_DEVICE_HOST ? host_ : on_device_) = comm;
}

void Lender::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  host_ = on_device_ = nullptr;
}

std::string Lender::numbered(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return name + " number " + std::to_string(made_[name]++);
}

weftComm_t Lender::make(const std::vector<int>& ranks, const std::string& name, const weftConfig_t& config) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool of_host = config.device == WEFT_DEVICE_HOST;
  const weftComm_t parent = of_host ? host_ : on_device_;
  if (parent == nullptr) return nullptr;
  std::string key = (of_host ? "host " : "device ") + name;
  for (const int rank : ranks) key += " " + std::to_string(rank);
  // A name may come back after its group has ended, and Weft wants a tag of its own for each.
  key += " number " + std::to_string(made_[key]++);
  weftComm_t made = nullptr;
  if (weftCommCreateGroup(parent, ranks.data(), static_cast<int>(ranks.size()), hash(key), &made, &config) !=
      weftSuccess) {
    std::rethrow_exception(backend_error(weftGetLastError(nullptr)));
  }
  return made;
}

}  // namespace weft_torch
