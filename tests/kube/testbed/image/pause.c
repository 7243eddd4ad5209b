/* Does nothing for as long as it is asked to, and takes in the dead: the first process of a pod's
   sandbox, and of a node. Linked statically, since in a sandbox there is nothing else. */

#include <signal.h>
#include <unistd.h>

static void end(int number) { (void)number; _exit(0); }

int main(void) {
  /* The first process of a pid namespace gets no signal that it has not asked for. */
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, SIG_IGN); /* The kernel takes the dead away by itself. */
  for (;;) pause();
}
