#include "train/write_checkpoint.h"

#include "base/file.h"
#include "base/hash.h"

namespace loom::train {
namespace {

/// Of the part of a checkpoint that each place has written; 0 where it has none. A collective.
Result<std::vector<uint64_t>> hashes_of_places(const engine::Engine& engine, const engine::Groups& groups,
                                               const std::string& folder, bool optimizer) {
  const program::Coordinates own = groups.coordinates();
  Result<uint64_t> hash = uint64_t{0};
  if (groups.group() == 0) {
    const Result<format::FlatLayout> layout = engine.state_layout(own.stage, own.tensor, optimizer);
    LOOM_TRY(layout.status());
    hash = hash_of_file(join_path(folder, layout->file_name(groups.member())));
  }
  LOOM_TRY(groups.agree(hash.status()));
  const Result<std::vector<uint64_t>> of_ranks = groups.gather(*hash);
  LOOM_TRY(of_ranks.status());
  std::vector<uint64_t> of_places(of_ranks->size());
  for (int rank = 0; rank < groups.ranks(); ++rank)
    of_places[static_cast<size_t>(groups.place_of(rank))] = (*of_ranks)[static_cast<size_t>(rank)];
  return of_places;
}

/// Adds the layouts of all states and the hashes of their files; these files by name.
Result<std::vector<std::string>> add_states(const engine::Engine& engine, const engine::Groups& groups,
                                            const std::vector<uint64_t>& hashes, bool optimizer,
                                            format::Json& manifest) {
  const program::Job& job = engine.job();
  std::vector<std::string> files;
  for (int stage = 0; stage < job.pipeline_degree; ++stage)
    for (int tensor = 0; tensor < job.tensor_degree; ++tensor) {
      const Result<format::FlatLayout> layout = engine.state_layout(stage, tensor, optimizer);
      LOOM_TRY(layout.status());
      manifest[engine::state_name(stage, tensor)] = layout->to_json();
      for (int owner = 0; owner < layout->owners(); ++owner) {
        files.push_back(layout->file_name(owner));
        const int place = groups.layout().place({owner, stage, tensor});
        manifest[format::kHashes][files.back()] = format::hash_text(hashes[static_cast<size_t>(place)]);
      }
    }
  return files;
}

}  // namespace

Status write_checkpoint(const engine::Engine& engine, const engine::Groups& groups, RunFolder& folder,
                        uint64_t step, bool optimizer, const std::function<format::Json()>& manifest,
                        const std::function<Status()>& written) {
  const bool first = groups.rank() == 0;
  format::Checkpoints& checkpoints = folder.checkpoints();
  const std::string path = checkpoints.step_folder(step);
  LOOM_TRY(groups.agree(first ? checkpoints.begin(step) : Status()));
  LOOM_TRY(groups.agree(engine.save_state(path, optimizer)));
  LOOM_TRY(written());
  const Result<std::vector<uint64_t>> hashes = hashes_of_places(engine, groups, path, optimizer);
  LOOM_TRY(hashes.status());
  const auto commit = [&]() -> Status {
    format::Json content = manifest();
    const Result<std::vector<std::string>> files = add_states(engine, groups, *hashes, optimizer, content);
    LOOM_TRY(files.status());
    LOOM_TRY(checkpoints.commit(step, content, *files));
    return checkpoints.prune();
  };
  return groups.agree(first ? commit() : Status());
}

}  // namespace loom::train
