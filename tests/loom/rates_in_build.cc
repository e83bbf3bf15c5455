// Rates that runs of tests measure of this machine are kept where the tests run, and not where those of users
// are.
#include <cstdlib>
#include <filesystem>

namespace {

const int kRatesInBuild = ::setenv("XDG_CACHE_HOME", (std::filesystem::current_path() / "cache").c_str(), 1);

}  // namespace
