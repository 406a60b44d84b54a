#include "video/tone.h"

#include "base/memory.h"

#include <libavutil/pixfmt.h>
#include <math.h>

#define WHITE   203.0 /* cd/m2 */
#define KNEE    0.6
#define ENCODED 4096

struct weft_tone {
    int transfer, primaries;
    const float (*to_709)[3];
    float linear[65536];          /* by 16-bit code; HLG: scene light */
    float gain[ENCODED + 1];      /* HLG: display over scene by luminance of the scene */
    uint8_t encoded[ENCODED + 1]; /* by linear light 0 .. 1 */
};

/* Matrices from the primaries of ITU-R BT.2020-2 and SMPTE RP 432-1 (P3, D65) to BT.709-6. All have
 * white point D65. */
static const float from_2020[3][3] = {{1.660491f, -0.587641f, -0.072850f},
                                      {-0.124550f, 1.132900f, -0.008349f},
                                      {-0.018151f, -0.100579f, 1.118730f}};
static const float from_p3[3][3] = {
    {1.224940f, -0.224940f, 0}, {-0.042057f, 1.042057f, 0}, {-0.019638f, -0.078636f, 1.098274f}};
static const float from_709[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};

bool weft_transfer_is_hdr(int transfer)
{
    return transfer == AVCOL_TRC_SMPTE2084 || transfer == AVCOL_TRC_ARIB_STD_B67;
}

static bool is_wide(int primaries)
{
    return primaries == AVCOL_PRI_BT2020 || primaries == AVCOL_PRI_SMPTE432 ||
           primaries == AVCOL_PRI_SMPTE431;
}

bool weft_tone_needed(int transfer, int primaries)
{
    return weft_transfer_is_hdr(transfer) || is_wide(primaries);
}

static double srgb_encode(double v)
{
    return v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
}

static double srgb_decode(double code)
{
    return code <= 0.04045 ? code / 12.92 : pow((code + 0.055) / 1.055, 2.4);
}

/* HLG gives scene light. The display's light is scene^1.2; the exponent applies to the
 * luminance. */
static double linear_of(int transfer, double code)
{
    if (transfer == AVCOL_TRC_SMPTE2084) {
        const double p = pow(code, 1 / 78.84375);
        return pow(fmax(p - 0.8359375, 0) / (18.8515625 - 18.6875 * p), 1 / 0.1593017578125) *
               10000 / WHITE;
    }
    if (transfer == AVCOL_TRC_ARIB_STD_B67)
        return code <= 0.5 ? code * code / 3
                           : (exp((code - 0.55991073) / 0.17883277) + 0.28466892) / 12;
    return srgb_decode(code);
}

static float shoulder(float v)
{
    const float knee = (float)KNEE;
    return v <= knee ? v : knee + (1 - knee) * (1 - expf(-(v - knee) / (1 - knee)));
}

weft_status weft_tone_create(int transfer, int primaries, weft_tone **out)
{
    weft_tone *t;
    WEFT_TRY(WEFT_NEW(t, 1, "tone mapping"));
    t->transfer = transfer;
    t->primaries = primaries;
    /* HDR without declared primaries is BT.2020. */
    t->to_709 = primaries == AVCOL_PRI_SMPTE432 || primaries == AVCOL_PRI_SMPTE431    ? from_p3
                : primaries == AVCOL_PRI_BT2020 || primaries == AVCOL_PRI_UNSPECIFIED ? from_2020
                                                                                      : from_709;
    for (int i = 0; i < 65536; i++)
        t->linear[i] = (float)linear_of(transfer, i / 65535.0);
    for (int i = 0; i <= ENCODED; i++) {
        t->encoded[i] = (uint8_t)lround(255 * srgb_encode((double)i / ENCODED));
        t->gain[i] = (float)(pow((double)i / ENCODED, 0.2) * 1000 / WHITE);
    }
    *out = t;
    return WEFT_OK;
}

void weft_tone_free(weft_tone *t)
{
    weft_free(t);
}

bool weft_tone_fits(const weft_tone *t, int transfer, int primaries)
{
    return t && t->transfer == transfer && t->primaries == primaries;
}

void weft_tone_map(const weft_tone *t, const uint8_t *wide, int64_t wide_stride, uint8_t *rgb,
                   int64_t stride, int64_t w, int64_t h)
{
    const bool hdr = weft_transfer_is_hdr(t->transfer), hlg = t->transfer == AVCOL_TRC_ARIB_STD_B67;
    for (int64_t y = 0; y < h; y++) {
        const uint16_t *from = (const uint16_t *)(const void *)(wide + y * wide_stride);
        uint8_t *to = rgb + y * stride;
        for (int64_t x = 0; x < w; x++, from += 3, to += 3) {
            float r = t->linear[from[0]], g = t->linear[from[1]], b = t->linear[from[2]];
            if (hlg) {
                const float luminance = 0.2627f * r + 0.6780f * g + 0.0593f * b;
                const float gain = t->gain[(int)(fminf(luminance, 1) * ENCODED + 0.5f)];
                r *= gain, g *= gain, b *= gain;
            }
            for (int k = 0; k < 3; k++) {
                const float v =
                    fmaxf(t->to_709[k][0] * r + t->to_709[k][1] * g + t->to_709[k][2] * b, 0);
                to[k] = t->encoded[(int)(fminf(hdr ? shoulder(v) : v, 1) * ENCODED + 0.5f)];
            }
        }
    }
}

double weft_tone_luma(int transfer, double code)
{
    if (!weft_transfer_is_hdr(transfer))
        return code;
    double light = linear_of(transfer, fmin(fmax(code, 0), 1));
    if (transfer == AVCOL_TRC_ARIB_STD_B67)
        light = pow(light, 1.2) * 1000 / WHITE;
    return srgb_encode(shoulder((float)light));
}
