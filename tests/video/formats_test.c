/* Every output format of videos: frames, timestamps and tags are read back as written, a rerun
 * writes the same bytes, and paths that cannot be written are errors at once. */
#include "base/config.h"
#include "base/fs.h"
#include "base/rng.h"
#include "video/frame_upload.h"
#include "video/palette.h"
#include "video/reader.h"
#include "video/video_encoder.h"
#include "video/writer.h"

#include <criterion/criterion.h>
#include <libavcodec/avcodec.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAMES = 12 };

static char *scratch(const char *name)
{
    weft_buf path = {0};
    weft_buf_printf(&path, "/tmp/weft-formats-%d-%s", (int)getpid(), name);
    return path.data;
}

/* Gradients that turn, and a disc that moves two pixels a frame. */
static void paint(uint8_t *rgb, int64_t w, int64_t h, int64_t t)
{
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            uint8_t *p = rgb + (y * w + x) * 3;
            const double u = (double)x / (double)w, v = (double)y / (double)h,
                         turn = 0.1 * (double)t, dx = (double)(x - 2 * t - 14),
                         dy = (double)y - (double)h / 2;
            p[0] = (uint8_t)(128 + 100 * sin(3 * u + turn));
            p[1] = (uint8_t)(128 + 90 * cos(2 * v - turn));
            p[2] = (uint8_t)(110 + 80 * sin(2 * (u + v)));
            if (dx * dx + dy * dy < 100)
                p[0] = 220, p[1] = 60, p[2] = 40;
        }
}

static const weft_video_tag tags[] = {
    {"title", "a \"red\" dog, \xc3\xa9t\xc3\xa9"}, {"seed", "41"}, {"negative", NULL}};

static void write_video_by(const char *encoder, const char *path, int64_t w, int64_t h,
                           int64_t frames)
{
    const weft_video_writer_options o = {.width = w,
                                         .height = h,
                                         .fps = 16,
                                         .crf = 12,
                                         .encoder = encoder,
                                         .tags = tags,
                                         .tag_count = WEFT_COUNT(tags)};
    weft_video_writer *writer;
    uint8_t *rgb = weft_alloc(w * h * 3);
    cr_assert_eq(weft_video_writer_open(path, &o, &writer), WEFT_OK, "%s", weft_error_message());
    for (int64_t t = 0; t < frames; t++) {
        paint(rgb, w, h, t);
        cr_assert_eq(weft_video_writer_rgb(writer, rgb, w * 3), WEFT_OK, "%s",
                     weft_error_message());
    }
    cr_assert_not(weft_path_exists(path), "%s: exists before it is complete", path);
    cr_assert_eq(weft_video_writer_finish(writer), WEFT_OK, "%s", weft_error_message());
    weft_video_writer_close(writer);
    weft_free(rgb);
}

static void write_video(const char *path, int64_t w, int64_t h, int64_t frames)
{
    write_video_by(NULL, path, w, h, frames);
}

/* The PSNR of all frames; their number, sizes and times are checked. `step`: of the file's times.
 * */
static double read_back(const char *path, int64_t w, int64_t h, int64_t frames, double step)
{
    weft_video_reader *r;
    weft_video_frame f;
    bool got;
    int64_t count = 0;
    double sum = 0;
    uint8_t *rgb = weft_alloc(w * h * 3);
    cr_assert_eq(weft_video_reader_open(path, NULL, &r), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_video_reader_info(r)->width, w);
    cr_assert_eq(weft_video_reader_info(r)->height, h);
    for (; weft_video_reader_next(r, &f, &got) == WEFT_OK && got; count++) {
        cr_assert_float_eq(f.seconds, (double)count / 16, step, "%s: frame %d at %g s", path,
                           (int)count, f.seconds);
        paint(rgb, w, h, count);
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w * 3; x++) {
                const double d = (double)f.plane[0][y * f.stride[0] + x] - rgb[y * w * 3 + x];
                sum += d * d;
            }
    }
    cr_assert_eq(count, frames, "%s: %d frames", path, (int)count);
    cr_assert_eq(weft_video_reader_errors(r), 0);
    weft_video_reader_close(r);
    weft_free(rgb);
    return 10 * log10(255 * 255.0 * (double)(w * h * 3 * frames) / (sum + 1e-9));
}

static void expect_tag(const char *path, const char *key, const char *value)
{
    char *tag = weft_video_writer_tag(path, key);
    cr_assert(value ? tag && !strcmp(tag, value) : !tag, "%s: %s is %s", path, key,
              tag ? tag : "absent");
    weft_free(tag);
}

static double round_trip(const char *extension, int64_t w, int64_t h, int64_t frames, double step)
{
    char name[2][32], *path[2], *bytes[2];
    int64_t size[2];
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "%d.%s", i, extension);
        path[i] = scratch(name[i]);
        write_video(path[i], w, h, frames);
        cr_assert_eq(weft_file_read(path[i], 1 << 24, &bytes[i], &size[i]), WEFT_OK);
    }
    cr_assert(size[0] == size[1] && !memcmp(bytes[0], bytes[1], (size_t)size[0]),
              "%s: a rerun writes other bytes", extension);
    const double psnr = read_back(path[0], w, h, frames, step);
    expect_tag(path[0], "title", tags[0].value);
    expect_tag(path[0], "seed", "41");
    expect_tag(path[0], "negative", NULL);
    for (int i = 0; i < 2; i++) {
        unlink(path[i]);
        weft_free(path[i]);
        weft_free(bytes[i]);
    }
    printf("%s %" PRId64 "x%" PRId64 ": %.2f dB, %" PRId64 " bytes\n", extension, w, h, psnr,
           size[0]);
    return psnr;
}

static void compare(int64_t w, int64_t h)
{
    const double mp4 = round_trip("mp4", w, h, FRAMES, 1e-4),
                 webm = round_trip("webm", w, h, FRAMES, 1e-3),
                 gif = round_trip("gif", w, h, FRAMES, 0.5e-2 + 1e-9),
                 png = round_trip("png", w, h, 1, 1e-4);
    cr_expect(mp4 > 38, "mp4: %.2f dB", mp4);
    cr_expect(webm > mp4 - 1, "webm: %.2f dB, mp4: %.2f dB", webm, mp4);
    cr_expect(gif > 32, "gif: %.2f dB", gif);
    cr_expect(png > 100, "png: %.2f dB", png); /* lossless */
}

/* Encoders that this FFmpeg has. */
Test(formats, encoders_of_clips)
{
    static const char *const names[] = {"libx264", "libx265", "libaom-av1", "libvpx-vp9"};
    int written = 0;
    for (int i = 0; i < WEFT_COUNT(names); i++) {
        if (weft_video_encoder_check(names[i], 12, "", "clips.encoder") != WEFT_OK)
            continue;
        char name[64];
        snprintf(name, sizeof name, "%s.mp4", names[i]);
        char *path = scratch(name);
        write_video_by(names[i], path, 64, 48, 5);
        cr_expect_gt(read_back(path, 64, 48, 5, 1.0 / 16), 30, "%s", names[i]);
        remove(path);
        weft_free(path);
        written++;
    }
    cr_expect_geq(written, 2, "%s", weft_error_message());
    cr_expect_neq(weft_video_encoder_check("libx264", 52, "", "clips.encoder"), WEFT_OK);
    cr_expect(strstr(weft_error_message(), "outside 1 to 51"), "%s", weft_error_message());
    cr_expect_neq(weft_video_encoder_check("libsvtav1", 30, "", "clips.encoder"), WEFT_OK);
}

/* An encoder of a GPU works, or its error names the missing part: the encoder, FFmpeg's reason
 * (a library that is not there, for instance) or the hardware. */
Test(formats, missing_hardware_encoders_are_explained)
{
    static const struct {
        const char *name, *needs;
    } hardware[] = {{"h264_nvenc", "needs an NVIDIA GPU"},
                    {"hevc_nvenc", "needs an NVIDIA GPU"},
                    {"av1_nvenc", "needs an NVIDIA GPU"},
                    {"h264_vaapi", "needs a GPU with VAAPI"},
                    {"hevc_vaapi", "access to its render node"},
                    {"av1_vaapi", "needs a GPU with VAAPI"},
                    {"h264_qsv", "needs an Intel GPU"},
                    {"hevc_qsv", "access to its render node"},
                    {"av1_qsv", "needs an Intel GPU"}};
    for (int i = 0; i < WEFT_COUNT(hardware); i++) {
        const char *name = hardware[i].name;
        if (weft_video_encoder_check(name, 23, "", "clips.encoder") == WEFT_OK)
            continue;
        const char *text = weft_error_message();
        printf("%s\n", text);
        const bool absent = strstr(text, "this FFmpeg has no encoder") != NULL,
                   unable = strstr(text, "does not start") && strstr(text, hardware[i].needs);
        cr_expect(strstr(text, name) && (absent || unable), "%s", text);
        cr_expect(!absent || strstr(text, "use one of libx264"), "%s", text);
        cr_expect(!strstr(text, "rror occurred") && !strstr(text, "eneric error") &&
                      !strstr(text, "()"),
                  "no reason: %s", text);
        cr_expect_eq(weft_error_class(), WEFT_MSG_VIDEO_ENCODER);
    }
    cr_expect_neq(weft_video_encoder_check("mjpeg_vaapi", 23, "", "clips.encoder"), WEFT_OK);
    cr_expect(strstr(weft_error_message(), "not an encoder that weft sets"), "%s",
              weft_error_message());
}

/* Packets of three frames of random samples, sent as planes or as NV12. */
static uint8_t *encode_noise(bool nv12, int64_t *bytes)
{
    enum { W = 70, H = 38 };
    weft_frame_upload upload = {0};
    const AVCodec *codec = avcodec_find_encoder_by_name("libx264");
    AVCodecContext *e = avcodec_alloc_context3(codec);
    AVPacket *packet = av_packet_alloc();
    AVFrame *frame = av_frame_alloc();
    weft_buf all = {0};
    cr_assert(e && packet && frame);
    av_log_set_level(AV_LOG_QUIET);
    e->width = frame->width = W;
    e->height = frame->height = H;
    e->time_base = (AVRational){1, 25};
    e->thread_count = 1;
    e->pix_fmt = nv12 ? AV_PIX_FMT_NV12 : AV_PIX_FMT_YUV420P;
    frame->format = AV_PIX_FMT_YUV420P;
    cr_assert_eq(weft_video_encoder_set(e, "libx264", 10, ""), 0);
    cr_assert_geq(avcodec_open2(e, codec, NULL), 0);
    cr_assert_eq(weft_frame_upload_needed(e), nv12);
    cr_assert_geq(av_frame_get_buffer(frame, 0), 0);
    for (int t = 0; t <= 3; t++) {
        cr_assert_geq(av_frame_make_writable(frame), 0);
        for (int p = 0; p < 3; p++)
            for (int y = 0; y < (p ? H / 2 : H); y++)
                for (int x = 0; x < (p ? W / 2 : W); x++)
                    frame->data[p][y * frame->linesize[p] + x] =
                        (uint8_t)(255 * weft_random_uniform((uint64_t)(t * 3 + p), WEFT_RNG_NOISE,
                                                            (uint64_t)(y * W + x)));
        frame->pts = t;
        if (t == 3)
            cr_assert_geq(avcodec_send_frame(e, NULL), 0);
        else
            cr_assert_geq(
                nv12 ? weft_frame_upload_send(&upload, e, frame) : avcodec_send_frame(e, frame), 0);
        while (avcodec_receive_packet(e, packet) >= 0) {
            weft_buf_append(&all, &packet->pts, sizeof packet->pts);
            weft_buf_append(&all, packet->data, packet->size);
        }
    }
    weft_frame_upload_free(&upload);
    av_frame_free(&frame);
    av_packet_free(&packet);
    avcodec_free_context(&e);
    *bytes = all.len;
    return (uint8_t *)all.data;
}

/* x264 converts planes to NV12 itself, so the packets are the same bytes. */
Test(formats, nv12_frames_have_the_samples_of_planes)
{
    int64_t bytes[2];
    uint8_t *packets[2];
    for (int i = 0; i < 2; i++)
        packets[i] = encode_noise(i, &bytes[i]);
    cr_expect_gt(bytes[0], 70 * 38);
    cr_expect(bytes[0] == bytes[1] && !memcmp(packets[0], packets[1], (size_t)bytes[0]));
    for (int i = 0; i < 2; i++)
        weft_free(packets[i]);
}

Test(formats, each_is_read_back_as_written)
{
    compare(128, 96);
}

Test(formats, each_has_odd_sizes)
{
    compare(125, 93);
}

Test(formats, few_colours_of_a_palette_are_exact)
{
    enum { W = 40, H = 30 };
    uint8_t rgb[W * H * 3], index[W * H];
    uint32_t colours[WEFT_PALETTE_COLOURS];
    weft_palette *p;
    for (int i = 0; i < W * H; i++) /* 192 colours, at least 30 from each other */
        for (int c = 0; c < 3; c++)
            rgb[i * 3 + c] = (uint8_t)(i % 192 /
                                       (c == 0   ? 1
                                        : c == 1 ? 8
                                                 : 48) %
                                       (c == 0 ? 8 : 6) * (c == 2 ? 60 : 30));
    cr_assert_eq(weft_palette_create(W, &p), WEFT_OK);
    weft_palette_draw(p, rgb, H, colours, index, W);
    for (int i = 0; i < W * H; i++) {
        const uint32_t own = 0xff000000u | (uint32_t)rgb[i * 3] << 16 |
                             (uint32_t)rgb[i * 3 + 1] << 8 | rgb[i * 3 + 2];
        cr_assert_eq(colours[index[i]], own, "pixel %d: %08x, not %08x", i, colours[index[i]], own);
    }
    weft_palette_free(p);
}

Test(formats, an_unfinished_file_does_not_stay)
{
    static const char *const extensions[] = {"mp4", "webm", "gif", "png"};
    const weft_video_writer_options o = {.width = 32, .height = 32, .fps = 8};
    for (int i = 0; i < WEFT_COUNT(extensions); i++) {
        weft_video_writer *writer;
        char name[32], command[256];
        uint8_t rgb[32 * 32 * 3] = {0};
        snprintf(name, sizeof name, "abort.%s", extensions[i]);
        char *path = scratch(name);
        cr_assert_eq(weft_video_writer_open(path, &o, &writer), WEFT_OK, "%s",
                     weft_error_message());
        cr_assert_eq(weft_video_writer_rgb(writer, rgb, 96), WEFT_OK);
        weft_video_writer_close(writer);
        snprintf(command, sizeof command, "! ls %s* 2>/dev/null", path);
        cr_assert_eq(system(command), 0, "%s: temporary files are left", path);
        weft_free(path);
    }
}

static void expect_refusal(const char *path, int64_t frames, double fps, const char *const *words)
{
    cr_assert_neq(weft_video_writer_check(path, frames, fps), WEFT_OK, "%s is not refused", path);
    cr_assert_eq(weft_error_class(), WEFT_MSG_FILE_NAME, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->file, path);
    for (; *words; words++)
        cr_assert(strstr(weft_error_message(), *words), "no '%s' in: %s", *words,
                  weft_error_message());
}

Test(formats, paths_that_cannot_be_written_are_refused)
{
    static const char *const words[3][5] = {
        {".avi", ".mp4, .webm, .gif, or .png"},
        {"dog.png", "17", ".webm"},
        {"dog.gif", "60", "50"},
    };
    expect_refusal("runs/dog.avi", 1, 8, words[0]);
    expect_refusal("dog.png", 17, 8, words[1]);
    expect_refusal("dog.gif", 17, 60, words[2]);
    static const char *const fine[] = {"a.mp4", "a.webm", "a.gif", "a.GIF"};
    for (int i = 0; i < WEFT_COUNT(fine); i++)
        cr_assert_eq(weft_video_writer_check(fine[i], 17, 50), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_video_writer_check("a.png", 1, 50), WEFT_OK);
    cr_assert_eq(weft_video_writer_check("a.png", 0, 0), WEFT_OK);
    const weft_video_writer_options o = {.width = 32, .height = 32, .fps = 8};
    weft_video_writer *writer;
    uint8_t rgb[32 * 32 * 3] = {0};
    char *path = scratch("two.png");
    cr_assert_eq(weft_video_writer_open(path, &o, &writer), WEFT_OK);
    cr_assert_eq(weft_video_writer_rgb(writer, rgb, 96), WEFT_OK);
    cr_assert_eq(weft_video_writer_rgb(writer, rgb, 96), WEFT_E_ARG, "a second frame of a .png");
    weft_video_writer_close(writer);
    weft_free(path);
}
