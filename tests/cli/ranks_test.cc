// What a launcher's environment makes the program do, without MPI. Real ranks: scripts/test-ranks.
#include "tests/cli/run_program.h"

namespace longstride {
namespace {

RunOptions with(std::vector<std::pair<std::string, std::string>> environment) {
  RunOptions options;
  options.environment = std::move(environment);
  return options;
}

TEST(Ranks, BenchLinkNeedsSeveral) {
  EXPECT_TRUE(refused(run_program({"bench", "link"}), {"there is one", "mpirun -np 2"}));
  EXPECT_TRUE(refused(run_program({"bench", "link"}, with({{"OMPI_COMM_WORLD_SIZE", "1"}})),
                      {"there is one"}));
  EXPECT_TRUE(refused(run_program({"bench", "link", "--bytes", "1,many"}), {"--bytes", "many"}));
}

TEST(Ranks, AMissingPluginIsNamed) {
  for (const char* const size : {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"})
    EXPECT_TRUE(refused(
        run_program({"bench", "link"},
                    with({{size, "2"}, {"PMIX_RANK", "0"}, {"LONGSTRIDE_MPI", "/nowhere/x.so"}})),
        {"/nowhere/x.so", "install Open MPI", "LONGSTRIDE_MPI"}));
}

// Not every library is the plugin.
TEST(Ranks, AnotherLibraryIsNoPlugin) {
  EXPECT_TRUE(refused(run_program({"bench", "link"}, with({{"OMPI_COMM_WORLD_SIZE", "2"},
                                                           {"LONGSTRIDE_MPI", "libm.so.6"}})),
                      {"libm.so.6 is not the MPI plugin"}));
}

TEST(Ranks, OtherCommandsRefuseSeveralOnce) {
  const std::vector<std::string> words = {"bench", "kernels"};
  EXPECT_TRUE(refused(
      run_program(words, with({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "0"}})),
      {"mpirun has started 3 processes of longstride bench kernels"}));
  const ProgramResult other =
      run_program(words, with({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}}));
  EXPECT_TRUE(ended(other, 2));
  EXPECT_EQ(other.out + other.err, "");
}

}  // namespace
}  // namespace longstride
