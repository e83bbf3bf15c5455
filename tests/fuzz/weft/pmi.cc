// PMI-1: the lines that a launcher answers on the descriptor that it has left open.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/id_exchange.h"
#include "fuzz.h"

using namespace weft;

FUZZ_TARGET(pmi) {
  // The client greets a launcher once: each run is another one, on another descriptor.
  static int runs = 0;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  const int descriptor = ::fcntl(ends[0], F_DUPFD_CLOEXEC, 200 + runs++ % 2);
  const std::string answers = input.rest_as_text();
  (void)::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  (void)!::write(ends[1], answers.data(), answers.size());
  (void)::shutdown(ends[1], SHUT_WR);
  (void)bootstrap::exchange_over_pmi(descriptor, 1, Deadline::in_seconds(1));
  for (const int fd : {descriptor, ends[0], ends[1]}) ::close(fd);
}
