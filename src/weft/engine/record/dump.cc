#include "engine/record/dump.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/temporary_folder.h"
#include "engine/context/progress.h"
#include "engine/gpu/captures.h"
#include "engine/gpu/device_executor.h"
#include "engine/run/communicator.h"

namespace weft::engine {
namespace {

/// 0 stands for what has not happened.
double us_or_zero(uint64_t at) { return at == 0 ? 0 : ticks_to_us(at); }

void on_signal(int) {
  const int saved = errno;
  ProgressEngine::request_dumps();
  errno = saved;
}

int signal_number(const std::string& name) {
  if (name == "USR1") return SIGUSR1;
  if (name == "USR2") return SIGUSR2;
  if (name == "QUIT") return SIGQUIT;
  return 0;
}

void add_operations(const Communicator& comm, nlohmann::ordered_json& root) WEFT_REQUIRES(context_lock) {
  root["unfinished"] = comm.operations().unfinished().size();
  auto& operations = root["operations"] = nlohmann::ordered_json::array();
  for (const Record& r : comm.recorder().snapshot()) {
    nlohmann::ordered_json row;
    row["number"] = r.number & kTransferBit ? r.number & kTransferMask : r.number;
    row["call"] = r.describe();
    row["bytes"] = r.count * device::size_of(r.type);
    row["algorithm"] = r.algorithm;
    row["in_place"] = r.in_place;
    row["stream"] = r.on_stream;
    row["result"] = code_name(r.outcome);
    row["queued_us"] = us_or_zero(r.queued);
    row["started_us"] = us_or_zero(r.started);
    row["done_us"] = us_or_zero(r.done);
    operations.push_back(std::move(row));
  }
}

// A file of its own takes the place of what stands at `path`. The folder may be one where other users write,
// too, and what they have put there is neither followed nor opened.
Status dump_in_place_of(const std::string& path, const Communicator& comm) WEFT_REQUIRES(context_lock) {
  static std::atomic<int> files{0};
  const std::string fresh = fmt::format("{}.{}", path, files.fetch_add(1));
  unlink(fresh.c_str());  // left by a process that had this number before
  const UniqueFd made(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!made.valid()) return fail_errno(errno, fmt::format("cannot write the flight recorder to {}", fresh));
  Status written = dump_to(comm, fresh);
  if (written.ok() && std::rename(fresh.c_str(), path.c_str()) != 0)
    written = fail_errno(errno, fmt::format("cannot write the flight recorder to {}", path));
  if (!written.ok()) unlink(fresh.c_str());
  return written;
}

}  // namespace

std::string dump_json(const Communicator& comm) {
  nlohmann::ordered_json root;
  root["communicator"] = comm.name();
  root["id"] = comm.id();
  root["rank"] = comm.rank();
  root["size"] = comm.size();
  root["layout"] = comm.members().layout().to_string();
  root["pid"] = getpid();
  root["failure"] = comm.failure().ok() ? nlohmann::ordered_json(nullptr)
                                        : nlohmann::ordered_json{{"result", code_name(comm.failure().code())},
                                                                 {"message", comm.failure().message()}};
  if (const DeviceExecutor* const executor = comm.on_device().executor) {
    const Status& waits = executor->device().why_no_memory_operations();
    root["calls_wait"] =
        waits.ok() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(waits.message());
  }
  add_operations(comm, root);
  if (comm.captures())
    for (const Communicator* shadow : comm.captures()->shadows()) {
      nlohmann::ordered_json graph{{"communicator", shadow->name()}, {"id", shadow->id()}};
      add_operations(*shadow, graph);
      root["graphs"].push_back(std::move(graph));
    }
  return json_text(root, 1);
}

Status dump_to(const Communicator& comm, const std::string& path) {
  std::ofstream file(path);
  file << dump_json(comm) << "\n";
  file.close();
  if (!file)
    return fail(Code::system_error, "cannot write the flight recorder to {}: {}", path, std::strerror(errno));
  return {};
}

std::string dump_to_directory(const Communicator& comm) {
  std::string directory = settings().recorder_dir;
  if (directory == "none") return "";
  if (directory.empty()) directory = temporary_folder();
  constexpr size_t kMostOfName = 100;  // a file's name has 255 bytes at most
  std::string name = comm.name().substr(0, kMostOfName);
  for (char& c : name)
    if (!isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  const std::string path =
      fmt::format("{}/weft-recorder.{}.{}.{}.json", directory, name, comm.rank(), getpid());
  if (Status written = dump_in_place_of(path, comm); !written) {
    log::warn("{}", written.message());
    return "";
  }
  return path;
}

void dump_all(Context& context) {
  const Lock lock = context.lock();
  for (auto& [id, comm] : context.communicators()) {
    if (comm->is_shadow()) continue;
    if (std::string path = dump_to_directory(*comm); !path.empty()) log::warn("flight recorder: {}", path);
  }
}

void install_dump_signal() {
  static std::once_flag once;
  std::call_once(once, [] {
    const int number = signal_number(settings().recorder_signal);
    struct sigaction current {};
    if (number == 0 || sigaction(number, nullptr, &current) != 0) return;
    if (current.sa_handler != SIG_DFL) {
      log::info("signal {} is handled by the program: the flight recorder does not listen to it", number);
      return;
    }
    struct sigaction ours {};
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART;
    sigaction(number, &ours, nullptr);
    // A program may end with its communicators open before the progress thread has written.
    (void)std::atexit([] { ProgressEngine::instance().serve_dumps(); });
  });
}

}  // namespace weft::engine
