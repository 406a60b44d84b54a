#include "format/tensors/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *descr;
    weft_dtype dtype;
} types[] = {
    {"<f4", WEFT_F32}, {"<f2", WEFT_F16}, {"<f8", WEFT_F64},
    {"<i4", WEFT_I32}, {"<i8", WEFT_I64}, {"|u1", WEFT_U8},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };

/* The text after 'key': in the header's Python dict, or NULL. */
static const char *after_key(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

static bool parse_dims(const char *at, weft_npy *npy)
{
    if (!at || *at != '(')
        return false;
    npy->count = 1;
    for (at++; *at && *at != ')';) {
        char *end;
        const int64_t n = strtoll(at, &end, 10);
        if (end == at || n < 0 || npy->rank == WEFT_NPY_MAX_RANK ||
            (n > 0 && npy->count > INT64_MAX / 8 / n))
            return false;
        npy->dim[npy->rank++] = n;
        npy->count *= n;
        at = end + strspn(end, ", ");
    }
    return *at == ')';
}

weft_status weft_npy_parse_head(const void *bytes, int64_t have, int64_t size, const char *name,
                                weft_npy *npy)
{
    const unsigned char *p = bytes;
    if (have < 10 || memcmp(p, "\x93NUMPY", 6) != 0 || p[6] < 1 || p[6] > 3)
        return weft_error(WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = name), "not an .npy file");
    const int prefix = p[6] == 1 ? 10 : 12;
    int64_t header = p[8] | p[9] << 8;
    if (p[6] > 1 && have >= 12)
        header |= (int64_t)p[10] << 16 | (int64_t)p[11] << 24;
    if (header > have - prefix || header > 65536)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = name),
                          "the .npy header has %" PRId64
                          " bytes and ends after the end of the file. Restore the file.",
                          header);
    char *text;
    WEFT_TRY(WEFT_NEW(text, header + 1, "%s", name));
    memcpy(text, p + prefix, (size_t)header);
    weft_npy found = {.dtype = WEFT_DTYPE_COUNT, .data = p + prefix + header};
    const char *descr = after_key(text, "descr"), *order = after_key(text, "fortran_order");
    for (int i = 0; descr && *descr == '\'' && i < TYPE_COUNT; i++)
        if (!strncmp(descr + 1, types[i].descr, 3))
            found.dtype = types[i].dtype;
    const bool dims = parse_dims(after_key(text, "shape"), &found);
    const bool c_order = order && !strncmp(order, "False", 5);
    weft_free(text);
    if (found.dtype == WEFT_DTYPE_COUNT || !dims || !c_order)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = name),
                          "the .npy header does not describe an array in C order of f2, f4, f8, "
                          "i4, i8 or u1. Save the array with a supported type.");
    if (found.count * weft_dtype_bytes(found.dtype) != size - prefix - header)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = name),
                          "the file has %" PRId64
                          " bytes of .npy data, and its shape needs %" PRId64 ". Restore the file.",
                          size - prefix - header, found.count * weft_dtype_bytes(found.dtype));
    *npy = found;
    return WEFT_OK;
}

weft_status weft_npy_parse(const void *bytes, int64_t size, const char *name, weft_npy *npy)
{
    return weft_npy_parse_head(bytes, size, size, name, npy);
}

void weft_npy_format(weft_dtype dtype, int rank, const int64_t *dim, const void *data,
                     weft_buf *out)
{
    char header[512];
    const char *descr = "?";
    int64_t count = 1;
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype)
            descr = types[i].descr;
    int at = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                      descr);
    for (int i = 0; i < rank; i++) {
        at += snprintf(header + at, sizeof header - (size_t)at, "%" PRId64 ",%s", dim[i],
                       i + 1 < rank ? " " : "");
        count *= dim[i];
    }
    at += snprintf(header + at, sizeof header - (size_t)at, "), }");
    const int total = (int)weft_aligned(10 + at + 1); /* data begins 64-byte aligned */
    while (at < total - 11)
        header[at++] = ' ';
    header[at++] = '\n';
    const unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)at, (unsigned char)(at >> 8)};
    weft_buf_append(out, magic, 10);
    weft_buf_append(out, header, at);
    if (data)
        weft_buf_append(out, data, count * weft_dtype_bytes(dtype));
}
