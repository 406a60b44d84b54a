#include "format/log/tfevents.h"

#include "base/fs.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

struct weft_tfevents {
    int fd;
    char *path;
    weft_buf pending; /* whole records */
    double flushed;   /* weft_now() of the last flush */
};

static const double flush_seconds = 5;
enum { FLUSH_BYTES = 1 << 20 };

/* ---- CRC32C -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(const unsigned char *p, int64_t n)
{
    uint64_t crc = 0xffffffff;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; n > 0; n--)
        crc = _mm_crc32_u8((uint32_t)crc, *p++);
    return ~(uint32_t)crc;
}
#endif

static uint32_t crc_plain(const unsigned char *p, int64_t n)
{
    uint32_t crc = 0xffffffff;
    for (; n > 0; n--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    return ~crc;
}

uint32_t weft_crc32c(const void *data, int64_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return crc_sse42(data, bytes);
#endif
    return crc_plain(data, bytes);
}

uint32_t weft_crc32c_masked(const void *data, int64_t bytes)
{
    const uint32_t crc = weft_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protocol buffers: field number << 3 | wire type, then the value ----------------------- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(weft_buf *b, uint64_t value)
{
    unsigned char byte[10];
    int n = 0;
    for (; value >= 0x80; value >>= 7)
        byte[n++] = (unsigned char)(value | 0x80);
    byte[n++] = (unsigned char)value;
    weft_buf_append(b, byte, n);
}

static void put_integer(weft_buf *b, int field, int64_t value)
{
    put_varint(b, (uint64_t)(field << 3 | VARINT));
    put_varint(b, (uint64_t)value);
}

static void put_little(weft_buf *b, uint64_t value, int bytes)
{
    unsigned char byte[8];
    for (int i = 0; i < bytes; i++)
        byte[i] = (unsigned char)(value >> 8 * i);
    weft_buf_append(b, byte, bytes);
}

static void put_double(weft_buf *b, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_varint(b, (uint64_t)(field << 3 | FIXED64));
    put_little(b, bits, 8);
}

static void put_float(weft_buf *b, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_varint(b, (uint64_t)(field << 3 | FIXED32));
    put_little(b, bits, 4);
}

static void put_bytes(weft_buf *b, int field, const void *data, int64_t bytes)
{
    put_varint(b, (uint64_t)(field << 3 | BYTES));
    put_varint(b, (uint64_t)bytes);
    weft_buf_append(b, data, bytes);
}

static void put_text(weft_buf *b, int field, const char *text)
{
    put_bytes(b, field, text, (int64_t)strlen(text));
}

/* A message inside a message; an allocation that failed inside fails outside. */
static void put_message(weft_buf *b, int field, weft_buf *inner)
{
    b->failed = b->failed || inner->failed;
    put_bytes(b, field, inner->data ? inner->data : "", inner->len);
    weft_buf_free(inner);
}

/* ---- records ------------------------------------------------------------------------------- */

static weft_status append_record(weft_tfevents *e, const weft_buf *event)
{
    WEFT_TRY(weft_buf_check(event));
    weft_buf *out = &e->pending;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)event->len >> 8 * i);
    weft_buf_append(out, length, 8);
    put_little(out, weft_crc32c_masked(length, 8), 4);
    weft_buf_append(out, event->data, event->len);
    put_little(out, weft_crc32c_masked(event->data, event->len), 4);
    WEFT_TRY(weft_buf_check(out));
    if (out->len > FLUSH_BYTES || weft_now() - e->flushed > flush_seconds)
        return weft_tfevents_flush(e);
    return WEFT_OK;
}

weft_status weft_tfevents_flush(weft_tfevents *e)
{
    int64_t done = 0;
    weft_status_code status = WEFT_OK;
    if (e->pending.len == 0)
        return WEFT_OK;
    while (done < e->pending.len) {
        const ssize_t n = write(e->fd, e->pending.data + done, (size_t)(e->pending.len - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            status = weft_error_errno(WEFT_AT(.file = e->path), "cannot write to the file");
            break;
        }
        done += n;
    }
    memmove(e->pending.data, e->pending.data + done, (size_t)(e->pending.len - done));
    e->pending.len -= done;
    e->flushed = weft_now();
    return status;
}

static void begin_event(weft_buf *event, int64_t step)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    put_double(event, 1, (double)now.tv_sec + 1e-6 * (double)now.tv_usec);
    if (step)
        put_integer(event, 2, step);
}

/* Summary.Value goes into Summary (field 1), that into the Event (field 5). */
static weft_status append_value(weft_tfevents *e, int64_t step, weft_buf *value)
{
    weft_buf summary = {0}, event = {0};
    put_message(&summary, 1, value);
    begin_event(&event, step);
    put_message(&event, 5, &summary);
    const weft_status_code status = append_record(e, &event);
    weft_buf_free(&event);
    return status;
}

weft_status weft_tfevents_scalar(weft_tfevents *e, const char *tag, int64_t step, double number)
{
    weft_buf value = {0};
    put_text(&value, 1, tag);
    put_float(&value, 2, (float)number);
    return append_value(e, step, &value);
}

/* ---- opening and closing ------------------------------------------------------------------- */

static weft_status create_file(weft_tfevents *e, const char *folder)
{
    char host[64] = "localhost";
    gethostname(host, sizeof host - 1);
    struct timeval now;
    gettimeofday(&now, NULL);
    for (int n = 0; n < 1000; n++) {
        weft_buf path = {0};
        weft_buf_printf(&path, "%s/events.out.tfevents.%010" PRId64 ".%s.%d.%d", folder,
                        (int64_t)now.tv_sec, host, (int)getpid(), n);
        WEFT_TRY(weft_buf_check(&path));
        e->path = path.data;
        e->fd = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (e->fd >= 0)
            return WEFT_OK;
        if (errno != EEXIST)
            return weft_error_errno(WEFT_AT(.file = e->path), "cannot create the file");
        weft_free(e->path);
        e->path = NULL;
    }
    return weft_error(
        WEFT_MSG_FILE_IO, WEFT_AT(.file = folder),
        "the folder has 1000 event files of this second already. Run the command again.");
}

weft_status weft_tfevents_open(const char *folder, weft_tfevents **out)
{
    WEFT_TRY(weft_make_dirs(folder));
    weft_tfevents *e;
    WEFT_TRY(WEFT_NEW(e, 1, "%s: an event file", folder));
    e->fd = -1;
    weft_buf event = {0};
    weft_status_code status;
    WEFT_GO(create_file(e, folder));
    begin_event(&event, 0);
    put_text(&event, 3, "brain.Event:2");
    WEFT_GO(append_record(e, &event));
    WEFT_GO(weft_tfevents_flush(e));
    *out = e;
out:
    weft_buf_free(&event);
    if (status != WEFT_OK) {
        if (e->fd >= 0) {
            close(e->fd);
            unlink(e->path);
        }
        weft_buf_free(&e->pending);
        weft_free(e->path);
        weft_free(e);
    }
    return status;
}

weft_status weft_tfevents_close(weft_tfevents *e)
{
    if (!e)
        return WEFT_OK;
    weft_status_code status = weft_tfevents_flush(e);
    const bool closed = close(e->fd) == 0;
    WEFT_GO(status);
    if (!closed)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = e->path), "cannot close the file"));
out:
    weft_buf_free(&e->pending);
    weft_free(e->path);
    weft_free(e);
    return status;
}
