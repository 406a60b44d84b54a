/* TensorBoard event files: scalars over steps.
 *
 * A file is a row of records (u64 length | masked CRC32C of it | bytes | masked CRC32C of them),
 * each a protocol-buffer Event (tensorflow/core/util/event.proto), which is encoded by hand here.
 * Records are appended and flushed whole, so a killed run leaves a file that TensorBoard reads up
 * to its end. */
#ifndef WEFT_FORMAT_TFEVENTS_H
#define WEFT_FORMAT_TFEVENTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_tfevents weft_tfevents;

/* A new file <folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>, never one that exists: a
 * resumed run adds a file to the folder, and TensorBoard joins them. */
weft_status weft_tfevents_open(const char *folder, weft_tfevents **events);
weft_status weft_tfevents_scalar(weft_tfevents *events, const char *tag, int64_t step,
                                 double value);
/* Bytes to the file; also done by itself every few seconds of writing, and by close. */
weft_status weft_tfevents_flush(weft_tfevents *events);
/* Accepts NULL; frees whatever the status is. */
weft_status weft_tfevents_close(weft_tfevents *events);

/* CRC32C (Castagnoli) of bytes, and TensorFlow's mask of it. */
uint32_t weft_crc32c(const void *data, int64_t bytes);
uint32_t weft_crc32c_masked(const void *data, int64_t bytes);

#endif
