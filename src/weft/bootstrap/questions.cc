// Questions and answers.
#include "bootstrap/questions.h"

#include <chrono>

#include "base/mutex.h"

namespace weft::bootstrap {

void Inquiry::settle(size_t slot, std::optional<OpReport> answer) {
  const MutexLock lock(mutex_);
  if (settled_[slot]) return;
  settled_[slot] = true;
  answers_[slot] = std::move(answer);
  if (--open_ == 0) changed_.notify_all();
}

std::vector<std::optional<OpReport>> Inquiry::wait(Deadline deadline) {
  MutexLock lock(mutex_);
  while (open_ > 0 && !deadline.passed()) {
    changed_.wait_for(lock, std::chrono::milliseconds(deadline.remaining_ms(60'000)));
  }
  return answers_;
}

void Questions::ask(std::span<const int> ranks, uint32_t comm, uint32_t op, Deadline deadline,
                    std::shared_ptr<Inquiry> inquiry) {
  drop_overdue();
  for (size_t slot = 0; slot < ranks.size(); ++slot) {
    const int rank = ranks[slot];
    if (rank == rank_) {
      inquiry->settle(slot, ways_.answer(rank_, comm, op));
    } else if (const auto way = way_to(rank, deadline)) {
      const uint64_t number = ++last_number_;
      pending_.emplace(number, Pending{rank, slot, deadline, inquiry});
      way->send(FrameWriter(FrameKind::question)
                    .u64(number)
                    .u32(static_cast<uint32_t>(rank_))
                    .u32(comm)
                    .u32(op)
                    .take());
    } else {
      inquiry->settle(slot, std::nullopt);
    }
  }
}

std::shared_ptr<Connection> Questions::way_to(int rank, Deadline deadline) {
  if (ways_.gone(rank)) return nullptr;
  if (auto link = ways_.link_to(rank)) return link;
  if (const auto found = opened_.find(rank); found != opened_.end()) return found->second;
  // The callbacks need the connection that they belong to, which is not there yet.
  const auto self = std::make_shared<std::weak_ptr<Connection>>();
  Connection::Events events;
  events.on_frame = [this, self](const Frame& frame) { on_frame(self->lock(), frame); };
  events.on_close = [this, rank](const Status&) {
    opened_.erase(rank);
    give_up(rank);
  };
  auto hello = FrameWriter(FrameKind::questions).u32(static_cast<uint32_t>(rank_)).take();
  const double within_s = deadline.remaining_ms(60'000) / 1e3;
  auto opened =
      Connection::open(loop_, ways_.address_of(rank), job_, std::move(hello), within_s, std::move(events));
  if (!opened.ok()) return nullptr;
  *self = *opened;
  return opened_[rank] = opened.take();
}

void Questions::welcome(UniqueFd connection) {
  const auto self = std::make_shared<std::weak_ptr<Connection>>();
  Connection::Events events;
  events.on_frame = [this, self](const Frame& frame) { on_frame(self->lock(), frame); };
  events.on_close = [this, self](const Status&) { asking_.erase(self->lock().get()); };
  auto adopted = Connection::adopt(loop_, std::move(connection), std::move(events));
  *self = adopted;
  Connection* const key = adopted.get();
  asking_[key] = std::move(adopted);
}

void Questions::on_frame(const std::shared_ptr<Connection>& way, const Frame& frame) {
  FrameReader reader(frame.body);
  const uint64_t number = reader.u64();
  if (frame.kind == FrameKind::question) {
    const auto from = static_cast<int>(reader.u32());
    const uint32_t comm = reader.u32(), op = reader.u32();
    if (!reader.ok()) return;
    const OpReport report = ways_.answer(from, comm, op);
    way->send(FrameWriter(FrameKind::answer)
                  .u64(number)
                  .u8(report.known ? 1 : 0)
                  .u8(report.ended ? 1 : 0)
                  .u32(report.last_started)
                  .text(report.call)
                  .text(report.algorithm)
                  .take());
  } else if (frame.kind == FrameKind::answer) {
    OpReport report;
    report.known = reader.u8() != 0;
    report.ended = reader.u8() != 0;
    report.last_started = reader.u32();
    report.call = reader.text();
    report.algorithm = reader.text();
    const auto found = pending_.find(number);
    if (found == pending_.end() || !reader.ok()) return;
    found->second.inquiry->settle(found->second.slot, std::move(report));
    pending_.erase(found);
  }
}

void Questions::give_up(int rank) {
  std::erase_if(pending_, [&](const auto& entry) {
    if (entry.second.rank != rank) return false;
    entry.second.inquiry->settle(entry.second.slot, std::nullopt);
    return true;
  });
}

/// Those who asked have stopped waiting; answers that still come find nothing.
void Questions::drop_overdue() {
  std::erase_if(pending_, [](const auto& entry) { return entry.second.deadline.passed(); });
}

void Questions::close() {
  for (auto& [number, pending] : pending_) pending.inquiry->settle(pending.slot, std::nullopt);
  pending_.clear();
  for (auto& [rank, connection] : opened_) connection->close();
  for (auto& [key, connection] : asking_) connection->close();
  opened_.clear();
  asking_.clear();
}

}  // namespace weft::bootstrap
