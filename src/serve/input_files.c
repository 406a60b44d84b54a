#include "serve/input_files.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const weft_input_kind weft_input_kinds[WEFT_INPUTS] = {
    [WEFT_INPUT_IMAGE] = {"input_reference", "image", "--image", "input", false},
    [WEFT_INPUT_LAST_IMAGE] = {"last_image", "last_image", "--last-image", "input-last", false},
    [WEFT_INPUT_VIDEO] = {"video", "video", "--video", "input-video", true},
    [WEFT_INPUT_CONTROL] = {"control", "control", "--control", "input-control", true},
    [WEFT_INPUT_FACE] = {"face", "face", "--face", "input-face", true},
    [WEFT_INPUT_MASK] = {"mask", "mask", "--mask", "input-mask", true},
    [WEFT_INPUT_REFINE] = {"refine", "refine", "--refine", "input-refine", true},
#define REFERENCE(i, end)                                                                          \
    [WEFT_INPUT_REFERENCE + (i)-1] = {"reference_image" end, "reference_image" end,                \
                                      "--reference-image", "input-reference" end, false}
    REFERENCE(1, ""),
    REFERENCE(2, "_2"),
    REFERENCE(3, "_3"),
    REFERENCE(4, "_4"),
#define IDENTITY(i, end)                                                                           \
    [WEFT_INPUT_IDENTITY + (i)-1] = {"identity_image" end, "identity_image" end,                   \
                                     "--identity-image", "input-identity" end, false}
    IDENTITY(1, ""),
    IDENTITY(2, "_2"),
    IDENTITY(3, "_3"),
    IDENTITY(4, "_4"),
    IDENTITY(5, "_5"),
    IDENTITY(6, "_6"),
    IDENTITY(7, "_7"),
    IDENTITY(8, "_8"),
    IDENTITY(9, "_9"),
    IDENTITY(10, "_10"),
    IDENTITY(11, "_11"),
    IDENTITY(12, "_12"),
    IDENTITY(13, "_13"),
    IDENTITY(14, "_14"),
    IDENTITY(15, "_15"),
    IDENTITY(16, "_16"),
};
_Static_assert(WEFT_IDENTITY_MOST_IMAGES == 16, "an input for each image of an identity");
_Static_assert(WEFT_INPUT_REFERENCES == 4, "an input for each reference image");
_Static_assert(WEFT_INPUTS < 31, "inputs are bits of an int");

weft_request_input weft_input_find(const char *field)
{
    int i = 0;
    while (i < WEFT_INPUTS && strcmp(weft_input_kinds[i].field, field) != 0)
        i++;
    return (weft_request_input)i;
}

weft_request_input weft_input_after(weft_request_input input)
{
    const int next = (int)input + 1;
    return input >= WEFT_INPUT_REFERENCE && next != WEFT_INPUT_IDENTITY && next < WEFT_INPUTS
               ? (weft_request_input)next
               : WEFT_INPUTS;
}

/* ---- uploads -------------------------------------------------------------------------------- */

bool weft_upload_write(weft_upload *u, const char *folder, const char *bytes, size_t count)
{
    if (!u->file)
        u->file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) + 1;
    if (!u->hash && (u->hash = XXH3_createState()))
        XXH3_128bits_reset(u->hash);
    if (!u->file || !u->hash)
        return false;
    XXH3_128bits_update(u->hash, bytes, count);
    while (count) {
        const ssize_t n = write(u->file - 1, bytes, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        count -= (size_t)n;
    }
    return true;
}

void weft_upload_close(weft_upload *u)
{
    if (u->file)
        close(u->file - 1);
    if (u->hash)
        XXH3_freeState(u->hash);
    *u = (weft_upload){0};
}

static bool read_at(int fd, int64_t at, unsigned char *bytes, size_t count)
{
    return pread(fd, bytes, count, (off_t)at) == (ssize_t)count;
}

static int64_t read_u32(const unsigned char *b)
{
    return (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

/* Whether the chunks of a PNG have an image and reach its end chunk. */
static bool is_whole_png(int fd, int64_t bytes)
{
    unsigned char h[8];
    bool has_data = false;
    for (int64_t at = 8; at + 12 <= bytes && read_at(fd, at, h, 8);) {
        const int64_t length = read_u32(h);
        if (at == 8 && memcmp(h + 4, "IHDR", 4) != 0)
            return false;
        has_data = has_data || (!memcmp(h + 4, "IDAT", 4) && length > 0);
        if (at + 12 + length > bytes)
            return false;
        if (!memcmp(h + 4, "IEND", 4))
            return has_data;
        at += 12 + length;
    }
    return false;
}

/* A JPEG has the end marker; padding may follow. */
static bool is_whole_jpeg(int fd, int64_t bytes)
{
    unsigned char end[64];
    const size_t last = bytes < 64 ? (size_t)bytes : 64;
    return read_at(fd, bytes - (int64_t)last, end, last) && memmem(end, last, "\xff\xd9", 2);
}

/* The RIFF of a WebP has its length. */
static bool is_whole_webp(int fd, int64_t bytes)
{
    unsigned char h[8];
    return read_at(fd, 0, h, 8) &&
           ((int64_t)h[7] << 24 | h[6] << 16 | h[5] << 8 | h[4]) + 8 <= bytes;
}

/* Whether the boxes of an MP4 or MOV have an index and frames, and end with the file. The last box
 * may have the length 0: until the end. */
static bool is_whole_mp4(int fd, int64_t bytes)
{
    unsigned char h[16];
    bool has_index = false, has_data = false;
    int64_t at = 0;
    while (at + 8 <= bytes && read_at(fd, at, h, 8)) {
        int64_t length = read_u32(h);
        has_index = has_index || !memcmp(h + 4, "moov", 4);
        has_data = has_data || !memcmp(h + 4, "mdat", 4);
        if (length == 1 && read_at(fd, at, h, 16) && h[8] == 0)
            length = read_u32(h + 8) << 32 | read_u32(h + 12);
        else if (length == 0)
            length = bytes - at;
        if (length < 8 || length > bytes - at)
            return false;
        at += length;
    }
    return at == bytes && has_index && has_data;
}

/* The end of a Matroska stream may be unknown: the worker finds out. */
static bool is_whole_matroska(int fd, int64_t bytes)
{
    unsigned char h[1];
    return bytes > 64 && read_at(fd, bytes - 1, h, 1);
}

static const struct media {
    const char *extension, *type, *magic;
    int offset, length; /* of the magic */
    const char *second; /* four bytes at 8; NULL: any */
    bool video;
    bool (*is_whole)(int fd, int64_t bytes);
} medias[] = {
    {"png", "image/png", "\x89PNG\r\n\x1a\n", 0, 8, NULL, false, is_whole_png},
    {"jpg", "image/jpeg", "\xff\xd8\xff", 0, 3, NULL, false, is_whole_jpeg},
    {"webp", "image/webp", "RIFF", 0, 4, "WEBP", false, is_whole_webp},
    {"mp4", "video/mp4", "ftyp", 4, 4, NULL, true, is_whole_mp4},
    {"webm", "video/webm", "\x1a\x45\xdf\xa3", 0, 4, NULL, true, is_whole_matroska},
};
enum { MEDIAS = sizeof medias / sizeof *medias };

static const struct media *find_media(int fd, bool videos)
{
    unsigned char head[12] = {0};
    const ssize_t n = pread(fd, head, sizeof head, 0);
    for (int i = 0; i < MEDIAS; i++) {
        const struct media *m = &medias[i];
        if (n >= m->offset + m->length && (videos || !m->video) &&
            !memcmp(head + m->offset, m->magic, (size_t)m->length) &&
            (!m->second || (n >= 12 && !memcmp(head + 8, m->second, 4))))
            return m;
    }
    return NULL;
}

weft_status weft_upload_name(const weft_upload *u, weft_request_input input,
                             char name[WEFT_INPUT_NAME])
{
    const weft_input_kind *kind = &weft_input_kinds[input];
    const int fd = u->file - 1;
    const struct media *m = find_media(fd, kind->videos);
    if (!m)
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = kind->field),
                          "the file is not a PNG, JPEG or WebP image%s",
                          kind->videos ? ", and not an MP4 or WebM video" : "");
    const int64_t bytes = lseek(fd, 0, SEEK_END);
    if (!m->is_whole(fd, bytes))
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = kind->field, WEFT_NUMBER(bytes)),
                          "the %s is truncated or damaged after %" PRId64
                          " bytes; send the whole file",
                          m->video ? "video" : "image", bytes);
    snprintf(name, WEFT_INPUT_NAME, "%s.%s", kind->stem, m->extension);
    return WEFT_OK;
}

weft_status weft_upload_store(const weft_upload *u, const char *folder, const char *name)
{
    char from[64], *to = weft_path_join(folder, name);
    WEFT_TRY(WEFT_ALLOCATED(to, "a file"));
    snprintf(from, sizeof from, "/proc/self/fd/%d", u->file - 1);
    weft_status_code status = WEFT_OK;
    if (fsync(u->file - 1) != 0 || linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) != 0)
        status = weft_error_errno(WEFT_AT(.file = to), "cannot store the file");
    weft_free(to);
    return status;
}

/* ---- stored requests ------------------------------------------------------------------------ */

const char *weft_input_of(const json_t *request, weft_request_input input)
{
    const char *name = json_string_value(json_object_get(request, weft_input_kinds[input].key));
    return name && *name ? name : NULL;
}

int weft_inputs_of(const json_t *request)
{
    int bits = 0;
    for (int i = 0; i < WEFT_INPUTS; i++)
        if (weft_input_of(request, (weft_request_input)i))
            bits |= 1 << i;
    return bits;
}

int weft_inputs_arguments(const json_t *request, char **arguments)
{
    int count = 0;
    for (int i = 0; i < WEFT_INPUTS; i++) {
        const char *name = weft_input_of(request, (weft_request_input)i);
        if (!name)
            continue;
        arguments[count++] = (char *)weft_input_kinds[i].option;
        arguments[count++] = (char *)name;
    }
    return count;
}

const char *weft_input_type(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < MEDIAS; i++)
        if (!strcmp(dot + 1, medias[i].extension))
            return medias[i].type;
    return "application/octet-stream";
}
