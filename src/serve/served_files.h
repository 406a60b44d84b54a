/* The files of jobs: removed with a job, and after an earlier server. The caller has the lock. */
#ifndef WEFT_SERVE_SERVED_FILES_H
#define WEFT_SERVE_SERVED_FILES_H

#include "serve/server_parts.h"

/* Removes the files of a job. */
weft_status weft_served_files_remove(const weft_server *server, const char *id);
/* Removes the deleted jobs that no worker has. */
weft_status weft_served_files_remove_deleted(weft_server *server);
/* Removes files that no job has, and of deleted and cancelled jobs, after an earlier server's end.
 * Waits until an earlier server's worker has ended. */
weft_status weft_served_files_recover(weft_server *server);

#endif
