/* Interlaced footage: combs are removed; progressive frames in an interlaced stream stay unchanged.
 * */
#include "base/fs.h"
#include "base/memory.h"
#include "video/deinterlace.h"
#include "video/reader.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { W = 320, H = 240, FRAMES = 20 };

static void run(const char *format, const char *a, const char *b)
{
    char command[640];
    snprintf(command, sizeof command, format, a, b);
    cr_assert_eq(system(command), 0, "%s", command);
}

static uint8_t *read_all(const char *path)
{
    char *bytes;
    int64_t size;
    cr_assert_eq(weft_file_read(path, 1 << 28, &bytes, &size), WEFT_OK, "%s", weft_error_message());
    cr_assert(size >= (int64_t)W * H * 3 * FRAMES, "%s: %" PRId64 " bytes", path, size);
    return (uint8_t *)bytes;
}

static double psnr(const uint8_t *a, const uint8_t *b)
{
    double sum = 0;
    for (int i = 0; i < W * H * 3 * FRAMES; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return 10 * log10(255.0 * 255 * W * H * 3 * FRAMES / (sum + 1e-9));
}

static uint8_t *through_reader(const char *path)
{
    uint8_t *rgb = weft_alloc((int64_t)W * H * 3 * FRAMES);
    weft_video_reader *r;
    weft_video_frame f;
    bool got;
    cr_assert_eq(weft_video_reader_open(path, NULL, &r), WEFT_OK, "%s", weft_error_message());
    for (int t = 0; t < FRAMES; t++) {
        cr_assert(weft_video_reader_next(r, &f, &got) == WEFT_OK && got);
        for (int y = 0; y < H; y++)
            memcpy(rgb + ((int64_t)t * H + y) * W * 3, f.plane[0] + y * f.stride[0], W * 3);
    }
    weft_video_reader_close(r);
    return rgb;
}

/* Fifty moving frames per second, interlaced to twenty-five, then read: like every second frame of
 * the fifty. */
Test(interlace, combs_go)
{
    static const char *const encoders[] = {"-c:v mpeg2video -q:v 2 -flags +ilme+ildct",
                                           "-c:v libx264 -crf 4 -flags +ilme+ildct",
                                           "-c:v libx264 -crf 4 -flags +ilme+ildct"};
    static const char *const formats[] = {"yuv420p", "yuv420p", "yuv422p10le"};
    char base[64], file[96], plain[96], truth[96];
    snprintf(base, sizeof base, "/tmp/weft-interlace-%d", (int)getpid());
    snprintf(file, sizeof file, "%s.mkv", base);
    snprintf(plain, sizeof plain, "%s.plain", base);
    snprintf(truth, sizeof truth, "%s.truth", base);
#define SCENE                                                                                      \
    "-f lavfi -i testsrc2=size=320x240:rate=50 -vf "                                               \
    "\"noise=alls=4:all_seed=3,scroll=h=0.02,gblur=0.7,format=yuv420p"
    for (int bottom = 0; bottom < 2; bottom++) {
        run("ffmpeg -v error -nostdin -y " SCENE
            "%s\" -fps_mode passthrough -frames:v 20 -f rawvideo -pix_fmt rgb24 %s",
            ",select=not(mod(n\\,2))", truth);
        for (int e = 0; e < 3; e++) {
            char weave[256];
            /* bottom field first: the first of two frames becomes the odd lines */
            snprintf(weave, sizeof weave,
                     ",format=%s,tinterlace=%s,setfield=%s\" -frames:v 20 %s -top %d", formats[e],
                     bottom ? "interleave_bottom" : "interleave_top", bottom ? "bff" : "tff",
                     encoders[e], !bottom);
            run("ffmpeg -v error -nostdin -y " SCENE "%s %s", weave, file);
            run("ffmpeg -v error -nostdin -y -i %s -f rawvideo -pix_fmt rgb24 %s", file, plain);
            uint8_t *a = read_all(truth), *b = read_all(plain), *c = through_reader(file);
            const double combed = psnr(a, b), mended = psnr(a, c);
            cr_expect(mended > combed + 4 && mended > 26, "%s, %s first: %.1f dB, combed %.1f dB",
                      encoders[e], bottom ? "bottom" : "top", mended, combed);
            weft_free(a);
            weft_free(b);
            weft_free(c);
        }
    }
    /* Progressive frames that are marked as interlaced. */
    run("ffmpeg -v error -nostdin -y " SCENE "%s %s",
        ",setfield=tff\" -frames:v 20 -c:v mpeg2video -q:v 2 -flags +ilme+ildct -top 1", file);
    run("ffmpeg -v error -nostdin -y -i %s -vf scale=flags=bicubic+accurate_rnd+full_chroma_int -f "
        "rawvideo -pix_fmt rgb24 %s",
        file, plain);
    uint8_t *b = read_all(plain), *c = through_reader(file);
    cr_expect(psnr(b, c) > 45, "progressive frames: %.1f dB", psnr(b, c));
    weft_free(b);
    weft_free(c);
    unlink(file);
    unlink(plain);
    unlink(truth);
}

/* Lines that are alternately `low` and `high` (of 255), of a format whose samples are shifted. */
static AVFrame *combed_frame(int format, int shift, int low, int high)
{
    AVFrame *f = av_frame_alloc();
    f->format = format;
    f->width = f->height = 64;
    f->interlaced_frame = f->top_field_first = 1;
    cr_assert_geq(av_frame_get_buffer(f, 0), 0);
    for (int p = 0; p < 3 && f->data[p]; p++)
        for (int y = 0; y < (p ? 32 : 64); y++)
            for (int x = 0; x < f->linesize[p] / (shift < 0 ? 1 : 2); x++) {
                const int level = p ? 128 : y % 2 ? high : low;
                if (shift < 0)
                    f->data[p][y * f->linesize[p] + x] = (uint8_t)level;
                else
                    ((uint16_t *)(void *)(f->data[p] + y * f->linesize[p]))[x] =
                        (uint16_t)(level << shift);
            }
    return f;
}

/* Detection of combs does not depend on the storage of samples: 8 bits, 10 bits low in a word, or 10
 * bits high in it (P010, which decoders of graphics cards and HDR footage have). Thin lines that
 * are weaker stay. */
Test(interlace, stored_depth_does_not_matter)
{
    static const struct {
        int format, shift;
    } kinds[] = {{AV_PIX_FMT_YUV420P, -1}, {AV_PIX_FMT_YUV420P10LE, 2}, {AV_PIX_FMT_P010LE, 8}};
    for (int k = 0; k < 3; k++) {
        const AVFrame *out;
        AVFrame *work = NULL, *weak = combed_frame(kinds[k].format, kinds[k].shift, 100, 108),
                *strong = combed_frame(kinds[k].format, kinds[k].shift, 100, 140);
        cr_assert_eq(weft_deinterlace(weak, &work, &out), WEFT_OK);
        cr_expect_eq(out, weak, "format %d: lines with a difference of 8 are not a comb", k);
        cr_assert_eq(weft_deinterlace(strong, &work, &out), WEFT_OK);
        cr_assert_neq(out, strong, "format %d: lines with a difference of 40 are a comb", k);
        cr_expect_eq(
            memcmp(out->data[0] + 9 * out->linesize[0], out->data[0] + 8 * out->linesize[0], 64), 0,
            "format %d: the later field is interpolated", k);
        av_frame_free(&weak);
        av_frame_free(&strong);
        av_frame_free(&work);
    }
}
