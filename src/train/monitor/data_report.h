/* What a run's data come to: printed when a stage begins and when it ends, and kept beside the
 * run's metrics. */
#ifndef WEFT_TRAIN_ACCOUNT_H
#define WEFT_TRAIN_ACCOUNT_H

#include "data/loader.h"
#include "runtime/comm.h"

/* Collective: what one rank found not to decode is known to all afterwards. The ranks must have
 * opened the same data. */
weft_status weft_account_share(weft_comm *comm, weft_loader *loader);
/* Prints weft_loader_explain behind `title` and writes weft_loader_account to `path`, with the
 * lines as "summary". */
weft_status weft_account_write(const weft_loader *loader, const char *title, const char *path);
/* Prints the summary of such a file. */
weft_status weft_account_show(const char *path, const char *title);

#endif
