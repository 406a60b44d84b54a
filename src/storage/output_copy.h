/* New results for a bucket: a command writes a folder or a file of this machine, which is sent when
 * it is complete.
 *
 * Configs (*.json) follow all other files, and model_index.json is last. A folder in the bucket is
 * therefore complete or not yet a model. A send that fails or is killed leaves objects that the
 * next command reports as existing. The files of this machine are removed by the close, or after a
 * kill by the next open. */
#ifndef WEFT_STORAGE_OUTPUT_COPY_H
#define WEFT_STORAGE_OUTPUT_COPY_H

#include "storage/storage.h"

typedef struct weft_output_copy weft_output_copy;
/* `location`: s3://BUCKET/PREFIX/NAME. WEFT_MSG_FILE_EXISTS: the bucket has the object, or objects
 * below. WEFT_E_UNSUPPORTED: the location is only read. */
weft_status weft_output_copy_open(const char *location, weft_output_copy **copy);
/* Opens the copy of one file. A file that exists is replaced by the send. */
weft_status weft_output_copy_open_file(const char *location, weft_output_copy **copy);
/* Path to write; borrowed. It does not exist, and its folder does. */
const char *weft_output_copy_path(const weft_output_copy *copy);
weft_status weft_output_copy_send(weft_output_copy *copy);
void weft_output_copy_close(weft_output_copy *copy); /* accepts NULL */

#endif
