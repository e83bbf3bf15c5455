// Vector clocks, and the accesses that are not known to be over.
#include "cuda/fake_driver/races.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "cuda/fake_driver/entry.h"

namespace fake {
namespace {

constexpr uint64_t kRecords = 64;  // of an event, that a stream may still wait for

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, count] : other) {
    uint64_t& own = clock[stream];
    own = std::max(own, count);
  }
}

/// The piece of work of the calling thread, which is a stream's.
thread_local StreamHandle* t_stream = nullptr;
thread_local uint64_t t_number = 0;

struct Past {
  uintptr_t begin, end;
  const void* stream;
  uint64_t count;   // which piece of the stream's work
  uint64_t number;  // which piece of all, as they were queued
  bool written;
  std::string name;

  bool is_before(const Clock& clock) const {
    const auto found = clock.find(stream);
    return found != clock.end() && found->second >= count;
  }
};

class Races {
 public:
  static Races& instance() {
    static Races* const races = new Races;
    return *races;
  }

  std::atomic<bool> on{false};
  std::mutex mutex;
  // Below: with the mutex.
  Clock host;
  std::map<const void*, Clock> streams, words;
  std::map<const void*, std::map<uint64_t, Clock>> events;  // by record
  std::vector<Past> past;
  uint64_t queued = 0;

  void add(const Past& access, const Clock& clock) {
    for (const Past& old : past) {
      const bool overlap = old.begin < access.end && access.begin < old.end;
      if (overlap && (old.written || access.written) && !old.is_before(clock)) report(old, access);
    }
    // An access before this write is before all that waits for the write.
    std::erase_if(past, [&](const Past& old) {
      const bool within = access.begin <= old.begin && old.end <= access.end;
      const bool replaced = access.written || (!old.written && old.stream == access.stream);
      return within && replaced && old.is_before(clock);
    });
    past.push_back(access);
  }
  std::string take() {
    const std::lock_guard guard(mutex);
    first_number_ = UINT64_MAX;
    return std::exchange(first_, {});
  }
  void clear() {
    const std::lock_guard guard(mutex);
    host.clear();
    streams.clear();
    words.clear();
    events.clear();
    past.clear();
    first_.clear();
    first_number_ = UINT64_MAX;
  }

 private:
  /// Of all races, that whose later piece was queued first: chance decides which is noticed first.
  void report(const Past& one, const Past& other) {
    const Past &before = one.number < other.number ? one : other, &after = &before == &one ? other : one;
    if (after.number >= first_number_) return;
    first_number_ = after.number;
    first_ = after.name + (after.written ? " writes" : " reads") + " memory that " + before.name +
             (before.written ? " writes" : " reads") + " on another stream, and does not wait for it";
  }

  std::string first_;
  uint64_t first_number_ = UINT64_MAX;
};

/// Calls change(races) with the lock, where races are followed and the thread is a stream's.
template <typename Change>
void in_piece(Change&& change) {
  Races& races = Races::instance();
  if (!races.on.load() || t_stream == nullptr) return;
  const std::lock_guard guard(races.mutex);
  change(races);
}

template <typename Change>
void in_host(Change&& change) {
  Races& races = Races::instance();
  if (!races.on.load()) return;
  const std::lock_guard guard(races.mutex);
  change(races);
}

}  // namespace

HostMoment host_moment() {
  HostMoment moment;
  in_host([&](Races& races) {
    moment.number = ++races.queued;
    moment.clock = std::make_shared<const Clock>(races.host);
  });
  return moment;
}

void begin_piece(StreamHandle* stream, const HostMoment& queued) {
  t_stream = stream;
  t_number = queued.number;
  in_piece([&](Races& races) {
    Clock& clock = races.streams[stream];
    if (queued.clock) join(clock, *queued.clock);
    ++clock[stream];
  });
}

void note_accesses(const std::string& name, const std::vector<Access>& accesses) {
  in_piece([&](Races& races) {
    const Clock& clock = races.streams[t_stream];
    for (const Access& access : accesses)
      if (access.bytes > 0)
        races.add({access.address, access.address + access.bytes, t_stream, clock.at(t_stream), t_number,
                   access.written, name},
                  clock);
  });
}

void note_record(const void* reached, uint64_t serial) {
  in_piece([&](Races& races) {
    std::map<uint64_t, Clock>& records = races.events[reached];
    records[serial] = races.streams[t_stream];
    if (serial > kRecords) records.erase(records.begin(), records.lower_bound(serial - kRecords));
  });
}

void note_wait(const void* reached, uint64_t serial) {
  in_piece([&](Races& races) { join(races.streams[t_stream], races.events[reached][serial]); });
}

void note_word_written(const uint32_t* word) {
  in_piece([&](Races& races) {
    join(races.words[word], races.streams[t_stream]);
    join(races.host, races.streams[t_stream]);
  });
}

void note_word_seen(const uint32_t* word) {
  in_piece([&](Races& races) {
    join(races.streams[t_stream], races.words[word]);
    join(races.streams[t_stream], races.host);
  });
}

void host_waited_for(StreamHandle* stream) {
  in_host([&](Races& races) { join(races.host, races.streams[stream]); });
}

void host_waited_for(const void* reached, uint64_t serial) {
  in_host([&](Races& races) { join(races.host, races.events[reached][serial]); });
}

void forget_accesses(uintptr_t address, size_t bytes) {
  in_host([&](Races& races) {
    std::erase_if(races.past,
                  [=](const Past& old) { return old.begin < address + bytes && address < old.end; });
  });
}

}  // namespace fake

using namespace fake;

FAKE_API void fake_cuda_follow_races(int on) {
  Races& races = Races::instance();
  races.on.store(false);
  races.clear();
  races.on.store(on != 0);
}
FAKE_API void fake_cuda_take_race(char* text, uint64_t bytes) {
  World::instance().wait_for_streams(true);
  std::strncpy(text, Races::instance().take().c_str(), bytes - 1);
  text[bytes - 1] = '\0';
}
