// Vector clocks, and the accesses that are not known to be over.
#include "cuda/fake_driver/races.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "cuda/fake_driver/entry.h"

namespace fake {
namespace {

/// How much of each stream's work comes before.
using Clock = std::map<const void*, uint64_t>;

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
}

struct Past {
  uintptr_t begin, end;
  const void* stream;
  uint64_t count;  // which piece of the stream's work
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

  std::mutex mutex;
  bool on = false;
  std::string first;
  std::map<const void*, Clock> streams, events;
  std::map<std::thread::id, Clock> threads;
  std::vector<Past> past;

  void add(const Past& access, const Clock& clock) {
    for (const Past& old : past) {
      const bool overlap = old.begin < access.end && access.begin < old.end;
      if (!overlap || !(old.written || access.written) || old.is_before(clock) || !first.empty()) continue;
      first = access.name + (access.written ? " writes" : " reads") + " memory that " + old.name +
              (old.written ? " writes" : " reads") + " on another stream, and does not wait for it";
    }
    // An access before this write is before all that waits for the write.
    std::erase_if(past, [&](const Past& old) {
      const bool within = access.begin <= old.begin && old.end <= access.end;
      const bool replaced = access.written || (!old.written && old.stream == access.stream);
      return within && replaced && old.is_before(clock);
    });
    past.push_back(access);
  }
};

}  // namespace

void note_accesses(StreamHandle* stream, const std::string& name, const std::vector<Access>& accesses) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  if (!races.on) return;
  Clock& clock = races.streams[stream];
  join(clock, races.threads[std::this_thread::get_id()]);
  const uint64_t count = ++clock[stream];
  for (const Access& access : accesses)
    if (access.bytes > 0)
      races.add({access.address, access.address + access.bytes, stream, count, access.written, name}, clock);
}

void note_record(EventHandle* event, StreamHandle* stream) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  if (races.on) races.events[event] = races.streams[stream];
}

void note_wait(EventHandle* event, StreamHandle* stream) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  if (races.on) join(races.streams[stream], races.events[event]);
}

void host_waited_for(StreamHandle* stream) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  if (races.on) join(races.threads[std::this_thread::get_id()], races.streams[stream]);
}

void host_waited_for(EventHandle* event) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  if (races.on) join(races.threads[std::this_thread::get_id()], races.events[event]);
}

void forget_accesses(uintptr_t address, size_t bytes) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  std::erase_if(races.past,
                [=](const Past& old) { return old.begin < address + bytes && address < old.end; });
}

}  // namespace fake

using namespace fake;

FAKE_API void fake_cuda_follow_races(int on) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  races.on = on != 0;
  races.first.clear();
  races.streams.clear();
  races.events.clear();
  races.threads.clear();
  races.past.clear();
}
FAKE_API void fake_cuda_take_race(char* text, uint64_t bytes) {
  Races& races = Races::instance();
  const std::lock_guard guard(races.mutex);
  std::strncpy(text, races.first.c_str(), bytes - 1);
  text[bytes - 1] = '\0';
  races.first.clear();
}
