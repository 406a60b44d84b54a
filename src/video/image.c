#include "video/image.h"

#include "base/fs.h"
#include "base/memory.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

static void png_append(png_structp png, png_bytep bytes, size_t count)
{
    weft_buf_append(png_get_io_ptr(png), bytes, (int64_t)count);
}

static void png_flush_nothing(png_structp png)
{
    (void)png;
}

/* libpng copies the texts. */
static weft_status set_tags(png_structp png, png_infop info, json_t *tags)
{
    const char *key;
    json_t *value;
    json_object_foreach(tags, key, value)
    {
        char *own_key = weft_strdup(key), *text = weft_strdup(json_string_value(value));
        const png_text tag = {
            .compression = PNG_ITXT_COMPRESSION_NONE, .key = own_key, .text = text};
        if (own_key && text)
            png_set_text(png, info, &tag, 1);
        weft_free(own_key);
        weft_free(text);
        WEFT_TRY(WEFT_ALLOCATED(own_key && text, "a PNG image"));
    }
    return WEFT_OK;
}

static weft_status encode(const uint8_t *rgb, int64_t width, int64_t height, json_t *tags,
                          uint8_t **out, int64_t *bytes)
{
    if (width < 1 || height < 1 || width > 1000000 || height > 1000000)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "a PNG of %" PRId64 " x %" PRId64
                          " pixels is not possible; sides are 1 to 1000000",
                          width, height);
    weft_buf buf = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_write_struct(&png, NULL);
        return weft_no_memory("a PNG image");
    }
    if (setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        weft_buf_free(&buf);
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "libpng cannot write %" PRId64 " x %" PRId64 " pixels", width, height);
    }
    png_set_write_fn(png, &buf, png_append, png_flush_nothing);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    weft_status_code status = set_tags(png, info, tags);
    if (status != WEFT_OK) {
        png_destroy_write_struct(&png, &info);
        return status;
    }
    png_write_info(png, info);
    for (int64_t y = 0; y < height; y++)
        png_write_row(png, rgb + y * width * 3);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    status = weft_buf_check(&buf);
    if (status != WEFT_OK) {
        weft_buf_free(&buf);
        return status;
    }
    *out = (uint8_t *)buf.data;
    *bytes = buf.len;
    return WEFT_OK;
}

weft_status weft_png_encode(const uint8_t *rgb, int64_t width, int64_t height, uint8_t **out,
                            int64_t *bytes)
{
    return encode(rgb, width, height, NULL, out, bytes);
}

weft_status weft_png_write(const char *path, const uint8_t *rgb, int64_t width, int64_t height)
{
    return weft_png_write_tagged(path, rgb, width, height, NULL);
}

weft_status weft_png_write_tagged(const char *path, const uint8_t *rgb, int64_t width,
                                  int64_t height, json_t *tags)
{
    uint8_t *png;
    int64_t bytes;
    weft_status_code status = encode(rgb, width, height, tags, &png, &bytes);
    if (status != WEFT_OK)
        return weft_error_at(status, WEFT_AT(.file = path));
    status = weft_file_write_atomic(path, png, bytes);
    weft_free(png);
    return status;
}

static void leave(png_structp png, png_const_charp message)
{
    (void)message;
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static char *read_tag(png_structp png, png_infop info, FILE *file, const char *key)
{
    png_textp texts;
    int count = 0;
    if (setjmp(png_jmpbuf(png)))
        return NULL;
    png_init_io(png, file);
    png_read_info(png, info);
    png_get_text(png, info, &texts, &count);
    for (int i = 0; i < count; i++)
        if (!strcmp(texts[i].key, key))
            return weft_strdup(texts[i].text);
    return NULL;
}

char *weft_png_tag(const char *path, const char *key)
{
    FILE *file = fopen(path, "rb");
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, leave, ignore);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    char *value = file && info ? read_tag(png, info, file, key) : NULL;
    if (file)
        fclose(file);
    png_destroy_read_struct(&png, &info, NULL);
    return value;
}

/* One axis: output cell i averages [i, i + 1) * scale of the input when shrinking, and interpolates
 * around its centre when growing. */
static float axis_weight(double cell0, double cell1, int64_t at)
{
    const double lo = fmax(cell0, (double)at), hi = fmin(cell1, (double)at + 1);
    return hi > lo ? (float)(hi - lo) : 0;
}

void weft_image_resize(const uint8_t *from, int64_t from_w, int64_t from_h, int64_t channels,
                       uint8_t *to, int64_t to_w, int64_t to_h)
{
    const double sx = (double)from_w / (double)to_w, sy = (double)from_h / (double)to_h;
    for (int64_t y = 0; y < to_h; y++) {
        double y0 = (double)y * sy, y1 = y0 + sy;
        if (sy < 1) /* growing: a window of one input pixel around the centre is bilinear */
            y0 = ((double)y + 0.5) * sy - 0.5, y1 = y0 + 1;
        for (int64_t x = 0; x < to_w; x++) {
            double x0 = (double)x * sx, x1 = x0 + sx;
            if (sx < 1)
                x0 = ((double)x + 0.5) * sx - 0.5, x1 = x0 + 1;
            float sum[4] = {0}, total = 0;
            for (int64_t v = (int64_t)floor(y0); v < (int64_t)ceil(y1); v++) {
                const int64_t cv = v < 0 ? 0 : v >= from_h ? from_h - 1 : v;
                const float wy = axis_weight(y0, y1, v);
                for (int64_t u = (int64_t)floor(x0); u < (int64_t)ceil(x1); u++) {
                    const int64_t cu = u < 0 ? 0 : u >= from_w ? from_w - 1 : u;
                    const float w = wy * axis_weight(x0, x1, u);
                    for (int64_t c = 0; c < channels && c < 4; c++)
                        sum[c] += w * from[(cv * from_w + cu) * channels + c];
                    total += w;
                }
            }
            for (int64_t c = 0; c < channels && c < 4; c++)
                to[(y * to_w + x) * channels + c] =
                    (uint8_t)(total > 0 ? sum[c] / total + 0.5f : 0);
        }
    }
}

weft_status weft_sheet_make(const weft_sheet *s, uint8_t **rgb, int64_t *width, int64_t *height)
{
    const int64_t zoom = s->zoom           ? s->zoom
                         : s->width <= 128 ? 2
                                           : 1,
                  gap = s->gap, cell_w = zoom * s->width, cell_h = zoom * s->height;
    if (s->videos < 1 || s->columns < 1 || cell_w < 1 || cell_h < 1 || gap < 0)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "a contact sheet of %" PRId64 " rows and %" PRId64
                          " columns is not possible",
                          s->videos, s->columns);
    const int64_t w = s->columns * (cell_w + gap) + gap, h = s->videos * (cell_h + gap) + gap;
    uint8_t *out = weft_alloc(w * h * 3);
    uint8_t *cell = weft_alloc(cell_w * cell_h * 3);
    if (!out || !cell) {
        weft_free(out);
        weft_free(cell);
        return weft_no_memory("%" PRId64 " x %" PRId64 " pixels of the contact sheet", w, h);
    }
    memset(out, 24, (size_t)(w * h * 3));
    for (int64_t v = 0; v < s->videos; v++)
        for (int64_t k = 0; k < s->columns && s->frames[v] > 0; k++) {
            const int64_t t = s->columns > 1 ? k * (s->frames[v] - 1) / (s->columns - 1) : 0;
            weft_image_resize(s->rgb[v] + t * s->height * s->width * 3, s->width, s->height, 3,
                              cell, cell_w, cell_h);
            for (int64_t y = 0; y < cell_h; y++)
                memcpy(out + ((gap + v * (cell_h + gap) + y) * w + gap + k * (cell_w + gap)) * 3,
                       cell + y * cell_w * 3, (size_t)cell_w * 3);
        }
    weft_free(cell);
    *rgb = out;
    *width = w;
    *height = h;
    return WEFT_OK;
}

weft_status weft_sheet_write(const weft_sheet *sheet, const char *path)
{
    uint8_t *rgb;
    int64_t width, height;
    WEFT_TRY(weft_sheet_make(sheet, &rgb, &width, &height));
    const weft_status_code status = weft_png_write(path, rgb, width, height);
    weft_free(rgb);
    return status;
}

uint8_t weft_float_to_u8(float v)
{
    const float u = (v + 1) * 127.5f;
    return !(u > 0) ? 0 : u >= 255 ? 255 : (uint8_t)(u + 0.5f);
}

void weft_clip_to_u8(const float *clip, int64_t frames, int64_t height, int64_t width,
                     bool channels_first, uint8_t *rgb)
{
    const int64_t area = height * width, volume = frames * area;
    for (int64_t i = 0; i < volume; i++)
        for (int64_t c = 0; c < 3; c++)
            rgb[i * 3 + c] =
                weft_float_to_u8(channels_first ? clip[c * volume + i] : clip[i * 3 + c]);
}
