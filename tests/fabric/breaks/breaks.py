"""Deliberate breaks of Weft's libfabric transport: each makes it rely on something that EFA does not give.

    breaks.py SOURCES TARGET

SOURCES is src/weft/transport. TARGET gets copies of its files ofi*.{h,cc}, in which `broken_by(n)` switches
break n on. The environment variable BREAK says which one that is. So the sources themselves know nothing of
breaks. A break whose place is not found exactly once ends the script with an error: the code has changed, and
the break has to change with it.

breaks_test.cc runs every break, and has the list of the tests that catch it.
"""
import pathlib
import sys

# (number, what is relied on, file, the text there, the text in its place)
BREAKS = [
    (1, "a put is whole once it is announced", "ofi_protocol.h",
     "return announced && stripes_seen == stripes_expected;",
     "return announced && (broken_by(1) || stripes_seen == stripes_expected);"),
    (2, "a put is announced before its stripes come", "ofi_incoming.cc",
     "  ++put->stripes_seen;\n",
     "  if (broken_by(2) && !put->announced) return;\n  ++put->stripes_seen;\n"),
    (3, "stripes come in the order of their puts", "ofi_incoming.cc",
     "peer.incoming.find(immediate_.sequence(immediate, peer.incoming.first()), immediate_.window());",
     "peer.incoming.find(broken_by(3) ? peer.incoming.first()\n"
     "  : immediate_.sequence(immediate, peer.incoming.first()), immediate_.window());"),
    (4, "segments come in the order of their bytes", "ofi_incoming.cc",
     "copy(from, place + header.position, payload, bytes)",
     "copy(from, place + (broken_by(4) ? put.segment_bytes : header.position), payload, bytes)"),
    (5, "the last segment comes last", "ofi_incoming.cc",
     "if (put.segment_bytes == total) arrived_whole",
     "if (put.segment_bytes == total || (broken_by(5) && header.position + bytes == total)) arrived_whole"),
    (6, "a source is free once its stripes are posted", "ofi_puts.cc",
     "  posted_.splice(posted_.end(), unposted_, put.self);\n  if (put.in_flight == 0) finish(put);",
     "  if (broken_by(6) && put.done) std::exchange(put.done, nullptr)->done = true;\n"
     "  posted_.splice(posted_.end(), unposted_, put.self);\n  if (put.in_flight == 0) finish(put);"),
    (7, "a send's buffer is free once it is posted", "ofi_rail.cc",
     "  if (outcome != 0) give_back(send);\n",
     "  if (outcome != 0 || broken_by(7)) give_back(send);\n"),
    (7, "", "ofi_rail.cc",
     "      sends_.push_back(operation);\n      return {.kind = Event::Kind::sent",
     "      if (!broken_by(7)) sends_.push_back(operation);\n      return {.kind = Event::Kind::sent"),
    (8, "a registration may end once the writes are posted", "ofi_puts.cc",
     "  posted_.splice(posted_.end(), unposted_, put.self);\n",
     "  if (broken_by(8)) put.registration.reset();\n"
     "  posted_.splice(posted_.end(), unposted_, put.self);\n"),
    (9, "a withdrawal comes after what it withdraws", "ofi_incoming.cc",
     "if (header.kind == MessageKind::put && put->withdrawn) return;",
     "if (!broken_by(9) && header.kind == MessageKind::put && put->withdrawn) return;"),
    (10, "writes are over in the order of their puts", "ofi_puts.cc",
     "void Puts::stripe_over(OutgoingPut& put) {\n",
     "void Puts::stripe_over(OutgoingPut& written) {\n"
     "  OutgoingPut& put = broken_by(10) && !posted_.empty() ? posted_.front() : written;\n"),
    (11, "acknowledgements of puts come in order", "ofi_incoming.cc",
     "peer.puts_received = std::max(peer.puts_received, std::min(header.sequence, peer.puts_started));",
     "peer.puts_received = std::max(broken_by(11) ? 0 : peer.puts_received,\n"
     "  std::min(header.sequence, peer.puts_started));"),
    (12, "acknowledgements of messages come in order", "ofi_incoming.cc",
     "peer.messages_taken = std::max(peer.messages_taken, std::min(header.position, peer.messages_sent));",
     "peer.messages_taken = std::max(broken_by(12) ? 0 : peer.messages_taken,\n"
     "  std::min(header.position, peer.messages_sent));"),
    (13, "there is always room", "ofi_rail.cc",
     "if (outcome == -FI_EAGAIN) return Progress::busy;",
     "if (outcome == -FI_EAGAIN && !broken_by(13)) return Progress::busy;"),
    (14, "local memory needs no registration", "ofi_rail.h",
     "return info_->domain_attr->mr_mode & FI_MR_LOCAL;",
     "return !broken_by(14) && (info_->domain_attr->mr_mode & FI_MR_LOCAL);"),
    (15, "keys are the program's choice", "ofi_registration.h",
     "uint64_t key(size_t rail) const { return fi_mr_key(regions_[rail].get()); }",
     "uint64_t key(size_t rail) const { return broken_by(15) ? 1 : fi_mr_key(regions_[rail].get()); }"),
    (16, "addresses count from the beginning of a registration", "ofi_rails.cc",
     "keys.base = rails_.front()->virtual_addresses() ? 0 : registration->base();",
     "keys.base = rails_.front()->virtual_addresses() && !broken_by(16) ? 0 : registration->base();"),
    (17, "a receiver follows all puts that are under way", "ofi_puts.cc",
     "if (to.puts_started - to.puts_received >= immediate_.window() ||",
     "if ((!broken_by(17) && to.puts_started - to.puts_received >= immediate_.window()) ||"),
    (18, "what is posted has left", "ofi_rail.h",
     "bool idle() const { return sends_.size() == send_count_ && writes_.size() == write_count_; }",
     "bool idle() const {\n"
     "  return broken_by(18) || (sends_.size() == send_count_ && writes_.size() == write_count_);\n}"),
    (19, "sends are over in order", "ofi_messages.cc",
     "  out_[number - (last_ - out_.size()) - 1] = true;\n",
     "  const size_t place = number - (last_ - out_.size()) - 1;\n"
     "  if (broken_by(19) && place >= out_.size()) return;  // it was taken for over before\n"
     "  for (size_t i = broken_by(19) ? 0 : place; i <= place; ++i) out_[i] = true;\n"),
]

SWITCH = """
#ifndef WEFT_BROKEN_BY
#define WEFT_BROKEN_BY
#include <cstdlib>
inline bool broken_by(int number) {
  static const int chosen = std::getenv("BREAK") ? std::atoi(std::getenv("BREAK")) : 0;
  return number == chosen;
}
#endif
"""


def main():
    sources, target = map(pathlib.Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    texts = {path.name: path.read_text() for path in sources.glob("ofi*") if path.suffix in (".h", ".cc")}
    for number, what, name, old, new in BREAKS:
        if texts[name].count(old) != 1:
            sys.exit(f"{name} has changed: break {number} ({what}) finds its place {texts[name].count(old)} times")
        texts[name] = texts[name].replace(old, new)
    for name, text in texts.items():
        path = target / name
        if name.endswith(".h"):
            text = text.replace("#pragma once\n", "#pragma once\n" + SWITCH, 1)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


main()
