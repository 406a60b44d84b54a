/* Colours: uniform frames of known codes, encoded without loss with every colour tag, are read as
 * the RGB values of the standards. */
#include "base/fs.h"
#include "base/memory.h"
#include "video/reader.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 32, COLOURS = 12 };
static const double palette[COLOURS][3] = {
    {255, 0, 0}, {0, 255, 0},     {0, 0, 255},     {255, 255, 0}, {0, 255, 255}, {255, 0, 255},
    {0, 0, 0},   {255, 255, 255}, {128, 128, 128}, {16, 16, 16},  {200, 90, 40}, {30, 120, 220}};

typedef struct standard {
    const char *tag; /* of FFmpeg's -colorspace */
    double kr, kb;   /* ITU-R BT.601-7 §2.5.1, BT.709-6 §3, BT.2020-2 table 4 */
} standard;

static void to_codes(const double rgb[3], const standard *s, bool full, int bits, int code[3])
{
    const double r = rgb[0] / 255, g = rgb[1] / 255, b = rgb[2] / 255, unit = 1 << (bits - 8);
    const double y = s->kr * r + (1 - s->kr - s->kb) * g + s->kb * b;
    const double c[3] = {y, (b - y) / (2 - 2 * s->kb), (r - y) / (2 - 2 * s->kr)};
    const double most = (double)((1 << bits) - 1);
    for (int k = 0; k < 3; k++) {
        const double v = full ? c[k] * most + (k ? 128 * unit : 0)
                              : (k ? 224 * c[k] + 128 : 219 * c[k] + 16) * unit;
        code[k] = (int)lround(fmin(fmax(v, 0), most));
    }
}

/* Values in 0 .. 1, not clamped. */
static void from_codes(const int code[3], const standard *s, bool full, int bits, double rgb[3])
{
    const double unit = 1 << (bits - 8), most = (double)((1 << bits) - 1);
    const double y = full ? code[0] / most : (code[0] / unit - 16) / 219;
    const double cb = full ? (code[1] - 128 * unit) / most : (code[1] / unit - 128) / 224;
    const double cr = full ? (code[2] - 128 * unit) / most : (code[2] / unit - 128) / 224;
    rgb[0] = y + cr * (2 - 2 * s->kr);
    rgb[2] = y + cb * (2 - 2 * s->kb);
    rgb[1] = (y - s->kr * rgb[0] - s->kb * rgb[2]) / (1 - s->kr - s->kb);
}

/* One frame of each colour's codes, as planar 4:2:0 or 4:4:4 of 8 or 10 bits, through an encoder
 * without loss. */
static void encode(const char *path, int codes[COLOURS][3], const char *format, int64_t w,
                   int64_t h, const char *arguments)
{
    const bool half = strstr(format, "420") != NULL, deep = strstr(format, "10le") != NULL;
    char raw[128], command[512];
    snprintf(raw, sizeof raw, "%s.yuv", path);
    FILE *f = fopen(raw, "wb");
    cr_assert(f);
    for (int i = 0; i < COLOURS; i++)
        for (int p = 0; p < 3; p++)
            for (int64_t n = (p && half ? w * h / 4 : w * h); n > 0; n--) {
                fputc(codes[i][p] & 255, f);
                if (deep)
                    fputc(codes[i][p] >> 8, f);
            }
    fclose(f);
    snprintf(command, sizeof command,
             "ffmpeg -v error -nostdin -y -f rawvideo -pix_fmt %s -s %dx%d -r 24 -i %s -pix_fmt %s "
             "-g 1 %s %s",
             format, (int)w, (int)h, raw, format, arguments, path);
    cr_assert_eq(system(command), 0, "%s", command);
    unlink(raw);
}

static uint8_t *read_frame(weft_video_reader *r, weft_video_frame *f)
{
    bool got;
    cr_assert_eq(weft_video_reader_next(r, f, &got), WEFT_OK, "%s", weft_error_message());
    cr_assert(got);
    return (uint8_t *)(uintptr_t)f->plane[0];
}

/* Largest difference, in 255ths, between what the reader gives and `wanted` (0 .. 1), in both
 * formats. */
static void check(const char *path, double wanted[COLOURS][3], double tolerance, const char *what)
{
    static const standard bt709 = {"bt709", 0.2126, 0.0722};
    for (int format = 0; format < 2; format++) {
        weft_video_reader *r;
        weft_video_frame f;
        const weft_video_options o = {.format = format ? WEFT_VIDEO_YUV420P : WEFT_VIDEO_RGB24};
        cr_assert_eq(weft_video_reader_open(path, &o, &r), WEFT_OK, "%s", weft_error_message());
        for (int i = 0; i < COLOURS; i++) {
            read_frame(r, &f);
            double rgb[3];
            const int64_t x = f.width / 2, y = f.height / 2;
            for (int k = 0; k < 3 && !format; k++)
                rgb[k] = f.plane[0][y * f.stride[0] + 3 * x + k] / 255.0;
            if (format) {
                const int code[3] = {f.plane[0][y * f.stride[0] + x],
                                     f.plane[1][y / 2 * f.stride[1] + x / 2],
                                     f.plane[2][y / 2 * f.stride[2] + x / 2]};
                from_codes(code, &bt709, false, 8, rgb);
            }
            for (int k = 0; k < 3; k++) {
                const double off =
                    255 * fabs(fmin(fmax(rgb[k], 0), 1) - fmin(fmax(wanted[i][k], 0), 1));
                /* The second format is rounded once more, in codes that are worth up to 2.1
                 * levels. */
                cr_expect(off <= tolerance + format,
                          "%s, %s, colour %d: %.1f %.1f %.1f, should be %.1f %.1f %.1f", what,
                          format ? "yuv" : "rgb", i, 255 * rgb[0], 255 * rgb[1], 255 * rgb[2],
                          255 * wanted[i][0], 255 * wanted[i][1], 255 * wanted[i][2]);
                if (off > tolerance + format)
                    break;
            }
        }
        weft_video_reader_close(r);
    }
}

static void scratch(char path[96], const char *name)
{
    snprintf(path, 96, "/tmp/weft-colour-%d-%s", (int)getpid(), name);
}

Test(colour, matrices_and_ranges)
{
    static const standard standards[] = {{"bt709", 0.2126, 0.0722},
                                         {"smpte170m", 0.299, 0.114},
                                         {"bt470bg", 0.299, 0.114},
                                         {"smpte240m", 0.212, 0.087},
                                         {"bt2020nc", 0.2627, 0.0593}};
    static const char *const formats[] = {"yuv420p", "yuv444p", "yuv420p10le"};
    char path[96];
    scratch(path, "sdr.mkv");
    for (size_t s = 0; s < sizeof standards / sizeof *standards; s++)
        for (int full = 0; full < 2; full++)
            for (int p = 0; p < 3; p++) {
                int codes[COLOURS][3];
                double wanted[COLOURS][3];
                char arguments[160], what[96];
                for (int i = 0; i < COLOURS; i++) {
                    to_codes(palette[i], &standards[s], full, p == 2 ? 10 : 8, codes[i]);
                    from_codes(codes[i], &standards[s], full, p == 2 ? 10 : 8, wanted[i]);
                }
                snprintf(arguments, sizeof arguments,
                         "-c:v libx264 -qp 0 -colorspace %s -color_range %s", standards[s].tag,
                         full ? "pc" : "tv");
                snprintf(what, sizeof what, "%s %s %s", standards[s].tag, full ? "full" : "limited",
                         formats[p]);
                encode(path, codes, formats[p], SIDE, SIDE, arguments);
                check(path, wanted, 2, what);
            }
    unlink(path);
}

/* Without a tag: BT.601 for small frames, BT.709 from 720 lines, limited range. */
Test(colour, no_tag)
{
    static const standard guess[] = {{"small", 0.299, 0.114}, {"hd", 0.2126, 0.0722}};
    char path[96];
    scratch(path, "none.mkv");
    for (int hd = 0; hd < 2; hd++) {
        int codes[COLOURS][3];
        double wanted[COLOURS][3];
        for (int i = 0; i < COLOURS; i++) {
            to_codes(palette[i], &guess[hd], false, 8, codes[i]);
            from_codes(codes[i], &guess[hd], false, 8, wanted[i]);
        }
        encode(path, codes, "yuv420p", SIDE, hd ? 720 : SIDE, "-c:v libx264 -qp 0");
        check(path, wanted, 2, guess[hd].tag);
    }
    unlink(path);
}

/* Rows of the matrix from RGB of some primaries (x, y of red, green, blue) and white D65 to XYZ. */
static void to_xyz(const double p[6], double m[3][3])
{
    const double white[3] = {0.3127 / 0.3290, 1, (1 - 0.3127 - 0.3290) / 0.3290};
    double c[3][3], scale[3];
    for (int k = 0; k < 3; k++) {
        c[0][k] = p[2 * k] / p[2 * k + 1];
        c[1][k] = 1;
        c[2][k] = (1 - p[2 * k] - p[2 * k + 1]) / p[2 * k + 1];
    }
    const double det = c[0][0] * (c[1][1] * c[2][2] - c[1][2] * c[2][1]) -
                       c[0][1] * (c[1][0] * c[2][2] - c[1][2] * c[2][0]) +
                       c[0][2] * (c[1][0] * c[2][1] - c[1][1] * c[2][0]);
    for (int k = 0; k < 3; k++) { /* Cramer's rule */
        double d[3][3];
        memcpy(d, c, sizeof d);
        for (int i = 0; i < 3; i++)
            d[i][k] = white[i];
        scale[k] = (d[0][0] * (d[1][1] * d[2][2] - d[1][2] * d[2][1]) -
                    d[0][1] * (d[1][0] * d[2][2] - d[1][2] * d[2][0]) +
                    d[0][2] * (d[1][0] * d[2][1] - d[1][1] * d[2][0])) /
                   det;
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            m[i][k] = c[i][k] * scale[k];
}

/* Light of RGB of the primaries `p` as RGB of BT.709. */
static void to_709(const double p[6], const double rgb[3], double out[3])
{
    static const double own[6] = {0.64, 0.33, 0.30, 0.60, 0.15, 0.06};
    double m[3][3], n[3][3], xyz[3];
    to_xyz(p, m);
    to_xyz(own, n);
    for (int i = 0; i < 3; i++)
        xyz[i] = m[i][0] * rgb[0] + m[i][1] * rgb[1] + m[i][2] * rgb[2];
    for (int col = 0; col < 3; col++) /* Gauss */
        for (int row = 0; row < 3; row++)
            if (row != col) {
                const double f = n[row][col] / n[col][col];
                for (int k = 0; k < 3; k++)
                    n[row][k] -= f * n[col][k];
                xyz[row] -= f * xyz[col];
            }
    for (int i = 0; i < 3; i++)
        out[i] = xyz[i] / n[i][i];
}

static double srgb(double v)
{
    return v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
}

static const double bt2020_primaries[6] = {0.708, 0.292, 0.170, 0.797, 0.131, 0.046};
static const double p3_primaries[6] = {0.680, 0.320, 0.265, 0.690, 0.150, 0.060};

typedef enum kind { PQ, HLG, SDR_2020, SDR_P3 } kind;

/* What codes in 0 .. 1 are to look like, in 0 .. 1 of sRGB: the formulas of the standards, step by
 * step. */
static void reference(kind k, const double code[3], double out[3])
{
    double light[3], y = 0;
    for (int i = 0; i < 3; i++) {
        const double e = fmin(fmax(code[i], 0), 1);
        if (k == PQ) { /* SMPTE ST 2084 */
            const double p = pow(e, 32.0 / 2523);
            light[i] = 10000 * pow(fmax(p - 107.0 / 128, 0) / (2413.0 / 128 - 2392.0 / 128 * p),
                                   8192.0 / 1305);
        } else if (k == HLG) { /* BT.2100: scene light, before its OOTF */
            light[i] =
                e <= 0.5 ? e * e / 3 : (exp((e - 0.55991073) / 0.17883277) + 0.28466892) / 12;
        } else {
            light[i] = e <= 0.04045 ? e / 12.92 : pow((e + 0.055) / 1.055, 2.4);
        }
        y += light[i] * (i == 0 ? 0.2627 : i == 1 ? 0.6780 : 0.0593);
    }
    for (int i = 0; i < 3 && k == HLG; i++)
        light[i] *= 1000 * pow(y, 0.2);
    for (int i = 0; i < 3 && k <= HLG; i++)
        light[i] /= 203; /* reference white */
    to_709(k == SDR_P3 ? p3_primaries : bt2020_primaries, light, out);
    for (int i = 0; i < 3; i++) {
        const double v = fmax(out[i], 0);
        out[i] = srgb(fmin(k <= HLG && v > 0.6 ? 0.6 + 0.4 * (1 - exp(-(v - 0.6) / 0.4)) : v, 1));
    }
}

Test(colour, high_range_and_wide_gamut)
{
    static const standard bt2020 = {"bt2020nc", 0.2627, 0.0593}, bt709 = {"bt709", 0.2126, 0.0722};
    static const struct {
        kind kind;
        const char *encoder, *tags, *format;
    } cases[] = {
        {PQ, "-c:v libx264 -qp 0", "-color_trc smpte2084 -color_primaries bt2020", "yuv420p10le"},
        {PQ, "-c:v libx265 -x265-params lossless=1:log-level=none",
         "-color_trc smpte2084 -color_primaries bt2020", "yuv420p10le"},
        {PQ, "-c:v libx264 -qp 0", "-color_trc smpte2084",
         "yuv420p"}, /* the tag counts, not the depth */
        {HLG, "-c:v libx265 -x265-params lossless=1:log-level=none",
         "-color_trc arib-std-b67 -color_primaries bt2020", "yuv420p10le"},
        {SDR_2020, "-c:v libx264 -qp 0", "-color_trc bt2020-10 -color_primaries bt2020",
         "yuv420p10le"},
        {SDR_P3, "-c:v libx264 -qp 0", "-color_trc bt709 -color_primaries smpte432", "yuv420p10le"},
    };
    char path[96], arguments[256];
    scratch(path, "wide.mkv");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int codes[COLOURS][3];
        double wanted[COLOURS][3];
        const int bits = strstr(cases[c].format, "10le") ? 10 : 8;
        const standard *s = cases[c].kind == SDR_P3 ? &bt709 : &bt2020;
        for (int i = 0; i < COLOURS; i++) {
            double picture[3], code[3];
            /* HDR: pure colours of full code would be lasers of 10000 cd/m2; these are up to about
             * 1000. */
            for (int k = 0; k < 3; k++)
                picture[k] = cases[c].kind == PQ ? 0.75 * palette[i][k] : palette[i][k];
            to_codes(picture, s, false, bits, codes[i]);
            from_codes(codes[i], s, false, bits, code);
            reference(cases[c].kind, code, wanted[i]);
        }
        snprintf(arguments, sizeof arguments, "%s %s -colorspace %s -color_range tv",
                 cases[c].encoder, cases[c].tags, s->tag);
        encode(path, codes, cases[c].format, SIDE, SIDE, arguments);
        check(path, wanted, bits == 8 ? 3 : 2, arguments);
        weft_video_info info;
        cr_assert_eq(weft_video_probe(path, &info), WEFT_OK);
        cr_expect_eq(info.hdr, cases[c].kind <= HLG, "%s", arguments);
    }
    unlink(path);
}

/* Frames for analysis only: gray of the full range, also of RGB files and of HDR. */
Test(colour, small_pictures)
{
    static const standard bt709 = {"bt709", 0.2126, 0.0722}, bt2020 = {"bt2020nc", 0.2627, 0.0593};
    static const char *const arguments[] = {
        "-c:v libx264 -qp 0 -colorspace bt709 -color_range tv",
        "-c:v libx264 -qp 0 -colorspace bt709 -color_range pc",
        "-c:v libx264 -qp 0 -color_trc smpte2084 -color_primaries bt2020 -colorspace bt2020nc"};
    char path[96];
    scratch(path, "small.mkv");
    for (int c = 0; c < 4; c++) {
        int codes[COLOURS][3];
        double wanted[COLOURS];
        for (int i = 0; i < COLOURS; i++) {
            const double level = i * 20, gray[3] = {level, level, level};
            double rgb[3], seen[3];
            to_codes(gray, c == 2 ? &bt2020 : &bt709, c == 1, 8, codes[i]);
            if (c == 3) /* planes of gbrp */
                codes[i][0] = codes[i][1] = codes[i][2] = (int)level;
            from_codes(codes[i], &bt709, c == 1, 8, rgb);
            reference(PQ, rgb, seen);
            wanted[i] = c == 3 ? level : 255 * (c == 2 ? seen[0] : rgb[0]);
        }
        encode(path, codes, c == 3 ? "gbrp" : "yuv444p", SIDE, SIDE,
               c == 3 ? "-c:v ffv1" : arguments[c]);
        weft_video_reader *r;
        weft_video_frame f;
        const weft_video_options o = {.format = WEFT_VIDEO_SMALL, .width = 8, .height = 8};
        cr_assert_eq(weft_video_reader_open(path, &o, &r), WEFT_OK, "%s", weft_error_message());
        for (int i = 0; i < COLOURS; i++) {
            read_frame(r, &f);
            cr_expect(fabs(f.plane[0][3 * f.stride[0] + 3] - wanted[i]) <= 2,
                      "case %d, gray %d: %d, should be %.1f", c, 20 * i,
                      f.plane[0][3 * f.stride[0] + 3], wanted[i]);
            cr_expect(abs(f.plane[1][3 * f.stride[1] + 3] - 128) <= 1 &&
                      abs(f.plane[2][3 * f.stride[2] + 3] - 128) <= 1);
        }
        weft_video_reader_close(r);
    }
    unlink(path);
}

Test(colour, what_has_no_conversion_is_said)
{
    static const standard bt2020 = {"bt2020nc", 0.2627, 0.0593};
    char path[96];
    int codes[COLOURS][3];
    scratch(path, "ictcp.mkv");
    for (int i = 0; i < COLOURS; i++)
        to_codes(palette[i], &bt2020, false, 10, codes[i]);
    encode(path, codes, "yuv420p10le", SIDE, SIDE,
           "-c:v libx264 -qp 0 -color_trc smpte2084 -color_primaries bt2020 -colorspace ictcp");
    weft_video_reader *r;
    weft_video_frame f;
    bool got;
    cr_assert_eq(weft_video_reader_open(path, NULL, &r), WEFT_OK);
    cr_assert_eq(weft_video_reader_next(r, &f, &got), WEFT_E_UNSUPPORTED);
    cr_assert_eq(weft_error_class(), WEFT_MSG_VIDEO_UNSUPPORTED, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->file, path);
    cr_assert(strstr(weft_error_text(), "ICtCp"), "%s", weft_error_message());
    weft_video_reader_close(r);
    unlink(path);
}
