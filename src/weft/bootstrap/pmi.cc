// A client of PMI version 1: lines of "cmd=… key=value …" on a descriptor that the launcher left open, one
// answer for each request. MPICH's mpiexec and srun --mpi=pmi2 speak it.
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fork.h"
#include "base/mutex.h"
#include "bootstrap/id_exchange.h"
#include "bootstrap/socket.h"

namespace weft::bootstrap {
namespace {

/// Asks "MPI_Initialized" or "MPI_Finalized" of the MPI library that this program has; false without one.
bool ask_mpi(const char* question) {
  using Question = int (*)(int*);
  const auto ask = reinterpret_cast<Question>(dlsym(RTLD_DEFAULT, question));
  int flag = 0;
  return ask != nullptr && ask(&flag) == 0 && flag != 0;
}

class PmiClient {
 public:
  static PmiClient& instance() {
    static PmiClient client;
    return client;
  }

  /// A process that began to talk PMI and ends without taking its leave is taken for crashed, and the job is
  /// killed. MPI, if the program uses it, takes the leave for us: the launcher does not tell the two apart. A
  /// forked child that ends leaves nothing.
  ~PmiClient() {
    if (fd_ >= 0 && owner_.here() && !ask_mpi("MPI_Initialized")) {
      [[maybe_unused]] const auto left = call("cmd=finalize", "finalize_ack", Deadline::in_seconds(5));
    }
  }

  Status begin(int fd, Deadline deadline) {
    if (ask_mpi("MPI_Finalized")) {
      return fail(Code::invalid_usage,
                  "MPI_Finalize has closed the way to the launcher: create communicators before it, or set "
                  "WEFT_ROOT");
    }
    if (fd_ == fd) return {};
    fd_ = fd;
    Result<std::string> answer =
        call("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
    if (answer.ok()) answer = call("cmd=get_my_kvsname", "my_kvsname", deadline);
    if (!answer.ok()) {
      fd_ = -1;  // somebody else's descriptor: do not speak to it again
      return answer.status();
    }
    space_ = value_of(*answer, "kvsname");
    return {};
  }

  Status put(const std::string& key, const std::string& value, Deadline deadline) {
    return call(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, value), "put_result", deadline)
        .status();
  }
  Status fence(Deadline deadline) { return call("cmd=barrier_in", "barrier_out", deadline).status(); }
  Result<std::string> get(const std::string& key, Deadline deadline) {
    Result<std::string> answer =
        call(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result", deadline);
    if (!answer.ok()) return answer;
    return value_of(*answer, "value");
  }

  std::string next_key() { return fmt::format("weft-id-{}", exchanges_++); }
  Mutex& mutex() WEFT_RETURN_CAPABILITY(mutex_) { return mutex_; }

 private:
  static std::string value_of(const std::string& line, const std::string& name) {
    const size_t at = (" " + line).find(" " + name + "=");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 1;
    return line.substr(begin, line.find(' ', begin) - begin);
  }

  /// Sends a request and returns its answer, which must be `expected` and, if it has a return code, a good
  /// one.
  Result<std::string> call(const std::string& request, const std::string& expected, Deadline deadline) {
    WEFT_TRY(send_line(request, deadline).in("PMI"));
    Result<std::string> line = receive_line(deadline);
    if (!line.ok()) return line.status().in(fmt::format("PMI, waiting for {}", expected));
    const std::string code = value_of(*line, "rc");
    if (value_of(*line, "cmd") == expected && (code.empty() || code == "0")) return line;
    return fail(Code::protocol_error, "PMI: '{}' was answered by '{}'", request.substr(0, 100),
                line->substr(0, 100));
  }

  // The descriptor is a socket or a pipe, blocking or not: as the launcher made it.
  Status send_line(const std::string& line, Deadline deadline) {
    const std::string text = line + "\n";
    for (size_t done = 0; done < text.size();) {
      if (!wait_for(fd_, POLLOUT, deadline)) return fail(Code::timeout, "the launcher does not listen");
      const ssize_t sent = ::write(fd_, text.data() + done, text.size() - done);
      if (sent < 0 && errno != EINTR && errno != EAGAIN) return fail_errno(errno, "writing to PMI_FD");
      done += static_cast<size_t>(std::max<ssize_t>(sent, 0));
    }
    return {};
  }
  Result<std::string> receive_line(Deadline deadline) {
    std::string line;
    for (;;) {
      if (!wait_for(fd_, POLLIN, deadline)) return fail(Code::timeout, "no answer before the deadline");
      char c;
      const ssize_t got = ::read(fd_, &c, 1);
      if (got < 0 && errno != EINTR && errno != EAGAIN) return fail_errno(errno, "reading from PMI_FD");
      if (got == 0) return fail(Code::remote_error, "the launcher closed the connection");
      if (got != 1) continue;
      if (c == '\n') return line;
      line += c;
      if (line.size() > 4096) return fail(Code::protocol_error, "a line of more than 4096 characters");
    }
  }

  Mutex mutex_;
  const Ownership owner_;
  int fd_ = -1;
  std::string space_;
  int exchanges_ = 0;
};

}  // namespace

Result<UniqueId> exchange_over_pmi(int pmi_fd, int rank, Deadline deadline) {
  PmiClient& pmi = PmiClient::instance();
  const MutexLock lock(pmi.mutex());
  WEFT_TRY(pmi.begin(pmi_fd, deadline));
  const KeyValueSpace space = {
      .put = [&](const std::string& key, const std::string& value) { return pmi.put(key, value, deadline); },
      .fence = [&] { return pmi.fence(deadline); },
      .get = [&](const std::string& key) { return pmi.get(key, deadline); },
  };
  return exchange_id(space, rank, pmi.next_key());
}

}  // namespace weft::bootstrap
