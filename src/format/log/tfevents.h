/* TensorBoard event files: scalars over steps.
 *
 * A file is a sequence of records: u64 length | masked CRC32C of the length | bytes | masked
 * CRC32C of the bytes. Each is a protocol-buffer Event (tensorflow/core/util/event.proto), encoded
 * by hand. Records are appended and flushed whole, so TensorBoard can read the file of a killed
 * run. */
#ifndef WEFT_FORMAT_LOG_TFEVENTS_H
#define WEFT_FORMAT_LOG_TFEVENTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_tfevents weft_tfevents;

/* A new file <folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>, never one that exists: a
 * resumed run adds a file to the folder, and TensorBoard joins them. */
weft_status weft_tfevents_open(const char *folder, weft_tfevents **events);
weft_status weft_tfevents_scalar(weft_tfevents *events, const char *tag, int64_t step,
                                 double value);
/* Writes buffered records to the file. Adding records does so every few seconds, and close does. */
weft_status weft_tfevents_flush(weft_tfevents *events);
/* Accepts NULL; frees whatever the status is. */
weft_status weft_tfevents_close(weft_tfevents *events);

/* CRC32C (Castagnoli) of bytes, and TensorFlow's masked form. */
uint32_t weft_crc32c(const void *data, int64_t bytes);
uint32_t weft_crc32c_masked(const void *data, int64_t bytes);

#endif
