/* Photographs are rotated upright: an image whose left half is white, with each orientation. */
#include "base/fs.h"
#include "video/exif.h"
#include "video/reader.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDE = 32, HIGH = 16, BLOCK = 36 };

/* A segment whose directory has one entry: the orientation. */
static void write_block(bool big, int way, uint8_t block[BLOCK])
{
    static const uint8_t begin[10] = {0xFF, 0xE1, 0, BLOCK - 2, 'E', 'x', 'i', 'f', 0, 0};
    const int tiff[] = {42, 2, 8, 4, 1, 2, 0x0112, 2, 3, 2, 1, 4, way, 2, 0, 2, 0, 4};
    memcpy(block, begin, sizeof begin);
    memcpy(block + 10, big ? "MM" : "II", 2);
    uint8_t *to = block + 12;
    for (size_t i = 0; i + 1 < sizeof tiff / sizeof *tiff && to < block + BLOCK; i += 2)
        for (int k = 0; k < tiff[i + 1] && to < block + BLOCK; k++)
            *to++ = (uint8_t)(tiff[i] >> 8 * (big ? tiff[i + 1] - 1 - k : k));
}

Test(exif, photographs_come_upright)
{
    char dir[] = "/tmp/weft_exif_XXXXXX", command[512], path[64];
    cr_assert(mkdtemp(dir));
    snprintf(
        command, sizeof command,
        "ffmpeg -v error -nostdin -y -f lavfi -i color=white:s=16x16 -vf pad=32:16 -frames:v 1 "
        "-update 1 %s/plain.jpg",
        dir);
    cr_assert_eq(system(command), 0, "%s", command);
    snprintf(path, sizeof path, "%s/plain.jpg", dir);
    uint8_t plain[4096];
    FILE *f = fopen(path, "rb");
    cr_assert(f);
    const size_t bytes = fread(plain, 1, sizeof plain, f);
    fclose(f);
    cr_assert(bytes > 100 && bytes < sizeof plain);
    snprintf(path, sizeof path, "%s/turned.jpg", dir);
    /* the corner top left, and the one bottom right, after the turn */
    static const struct {
        int way, rotation, first, last;
    } row[] = {{1, 0, 255, 0}, {3, 180, 0, 255}, {6, 90, 255, 0}, {8, 270, 0, 255}, {9, 0, 255, 0}};
    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        const size_t k = i / 2;
        uint8_t block[BLOCK];
        write_block(i % 2, row[k].way, block);
        f = fopen(path, "wb");
        cr_assert(f);
        fwrite(plain, 1, 2, f);
        fwrite(block, 1, BLOCK, f);
        fwrite(plain + 2, 1, bytes - 2, f);
        fclose(f);
        weft_video_reader *reader;
        weft_video_frame frame;
        bool got;
        cr_assert_eq(weft_video_reader_open(path, &(weft_video_options){.format = WEFT_VIDEO_RGB24},
                                            &reader),
                     WEFT_OK);
        const weft_video_info *info = weft_video_reader_info(reader);
        const bool sideways = row[k].rotation % 180 != 0;
        cr_expect_eq(info->rotation, row[k].rotation, "orientation %d", row[k].way);
        cr_assert_eq(info->width, sideways ? HIGH : WIDE);
        cr_assert_eq(info->height, sideways ? WIDE : HIGH);
        cr_assert_eq(weft_video_reader_next(reader, &frame, &got), WEFT_OK);
        cr_assert(got);
        const int first = frame.plane[0][0],
                  last =
                      frame.plane[0][(frame.height - 1) * frame.stride[0] + (frame.width - 1) * 3];
        cr_expect(abs(first - row[k].first) < 9 && abs(last - row[k].last) < 9,
                  "orientation %d: corners %d and %d", row[k].way, first, last);
        weft_video_reader_close(reader);
    }
    /* a block that is truncated anywhere has no effect, and is not read past its end */
    uint8_t whole[2 + BLOCK] = {0xFF, 0xD8};
    write_block(true, 6, whole + 2);
    cr_assert_eq(weft_exif_rotation(whole, sizeof whole), 90);
    for (size_t n = 0; n < sizeof whole; n++) {
        uint8_t *part = malloc(n + 1);
        memcpy(part, whole, n);
        cr_expect_eq(weft_exif_rotation(part, (int64_t)n), 0, "%zu bytes", n);
        free(part);
    }
    cr_expect_eq(weft_remove_tree(dir), WEFT_OK);
}
