/* The folder of this machine in which a command writes results for a bucket.
 *
 *     s3://BUCKET/run ── open: newer files ──> COPIES/out-0123456789abcdef/files/
 *                     <── send: new and changed files ──
 *
 * A command reads and writes the folder only. Each send makes the bucket like the folder, in an
 * order in which nothing unfinished can be taken for finished:
 *
 *   1. remove the marks of folders whose files change: state.json, model_index.json, complete
 *   2. send all other files
 *   3. send *.json, which describe others      4. send *.jsonl and summary.json, which list all
 *   5. send marks
 *   6. remove the marks of removed folders     7. remove their other files
 *
 * The folder stays after the command, with all that could not be sent: a killed process loses
 * nothing. The next open keeps the folder if the bucket is as the folder last left it, and receives
 * files that the folder lost. If another machine has written meanwhile, the bucket's files replace
 * the files of the folder. One run at a time owns the location (bucket_owner.h). Hidden files,
 * temporary ones and locks are not sent. */
#ifndef WEFT_STORAGE_WORKING_COPY_H
#define WEFT_STORAGE_WORKING_COPY_H

#include "storage/storage.h"

typedef struct weft_working_copy weft_working_copy;
/* `location`: s3://BUCKET/PREFIX. WEFT_MSG_FOLDER_LOCKED: another run writes there.
 * WEFT_E_UNSUPPORTED: the location is only read. Call it while the process has one thread. */
weft_status weft_working_copy_open(const char *location, weft_working_copy **copy);
/* Opens the copy of a file, s3://BUCKET/PREFIX/NAME.EXT, and of the files NAME.* in its folder. */
weft_status weft_working_copy_open_file(const char *location, weft_working_copy **copy);
const char *weft_working_copy_folder(const weft_working_copy *copy);   /* borrowed */
const char *weft_working_copy_location(const weft_working_copy *copy); /* borrowed */
/* Sends what has changed. Any thread; Ctrl-C does not end it. After an error the folder has what is
 * missing in the bucket, and the next send continues. WEFT_MSG_FOLDER_LOCKED: another writer has
 * added, replaced or removed files since the last send or the open, and nothing is sent. Of two
 * writers that send at the same moment, the next send of one reports the other. */
weft_status weft_working_copy_send(weft_working_copy *copy);
/* Closes the copy and removes its folder, unless another process uses the folder. For results that
 * were sent and that no later command needs here. Accepts NULL. */
void weft_working_copy_discard(weft_working_copy *copy);
/* Sends nothing. Accepts NULL. */
void weft_working_copy_close(weft_working_copy *copy);

#endif
