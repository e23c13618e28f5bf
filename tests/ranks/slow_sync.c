// Preloaded: every fsync takes a tenth of a second longer, so that saves last for some steps.
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int file) {
  usleep(100000);
  return (int)syscall(SYS_fsync, file);
}
