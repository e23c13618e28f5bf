// Preloaded: an fsync takes 0.3 s longer, or as long as the file exists that LONGSTRIDE_TEST_GATE
// names, so that saves can be seen beside steps.
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int file) {
  const char* gate = getenv("LONGSTRIDE_TEST_GATE");
  if (gate == NULL) usleep(300000);
  while (gate != NULL && access(gate, F_OK) == 0) usleep(10000);
  return (int)syscall(SYS_fsync, file);
}
