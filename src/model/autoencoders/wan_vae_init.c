#include "model/autoencoders/wan_vae_init.h"

#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { COLOURS = 3, CONSTANT = 6, CARRIED = 7 };
/* A larger constant carries colours more exactly through a norm, but makes the loss steeper in
 * weights that read the constant without a norm. With 16, the first steps overshoot, and rounding
 * errors grow a thousandfold within 50 steps. 4 costs 0.5 dB of the first step.
 *
 * The constant of narrow levels only keeps rows away from 0. After 50 steps, 3 ranks differ from
 * one rank by 4e-5 with 0.1, and by 2e-7 with 0.3. After 150 steps neither value learns reliably
 * faster. */
static const double constant_level = 4, narrow_level = 0.3, feature_gain = 0.5;

/* Weight (O,I,kt,ky,kx) or (O,I,ky,kx) of a convolution, and its bias. */
typedef struct conv {
    float *w, *b;
    int64_t out, in, kt, ky, kx;
} conv;

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

static float *at(const conv *c, int64_t o, int64_t i, int64_t t, int64_t y, int64_t x)
{
    return c->w + (((o * c->in + i) * c->kt + t) * c->ky + y) * c->kx + x;
}

/* Sets random features of the current frame. The constant channel is not read. */
static void fill_random(const conv *c, const char *name, double gain, uint64_t seed)
{
    /* The key includes the scope, so that initial weights are bitwise identical to those of earlier
     * versions. */
    char whole[520];
    const int length = snprintf(whole, sizeof whole, "vae.%s", name);
    const uint64_t key = weft_seed_mix(seed, XXH64(whole, (size_t)length, 0));
    const double deviation = gain / sqrt((double)(c->in * c->ky * c->kx));
    const int64_t area = c->ky * c->kx, count = c->out * c->in * c->kt * area;
    for (int64_t i = 0; i < count; i++) {
        const bool present = i / area % c->kt == c->kt - 1;
        c->w[i] =
            present ? (float)(deviation * weft_random_normal(key, WEFT_RNG_INIT, (uint64_t)i)) : 0;
    }
    for (int64_t o = 0; c->b && o < c->out; o++)
        c->b[o] =
            (float)(0.3 * gain * weft_random_normal(key, WEFT_RNG_INIT, (uint64_t)(count + o)));
}

/* Sets the weights of output channel o to zero. */
static void clear_row(const conv *c, int64_t o)
{
    memset(c->w + o * c->in * c->kt * c->ky * c->kx, 0,
           (size_t)(c->in * c->kt * c->ky * c->kx) * 4);
    if (c->b)
        c->b[o] = 0;
}

static void set(const conv *c, int64_t o, int64_t i, float value)
{
    *at(c, o, i, c->kt - 1, c->ky / 2, c->kx / 2) = value;
}

/* Input convolution: colours to the carried channels. */
static void begin_in(const conv *c)
{
    for (int64_t o = 0; o < CARRIED; o++)
        clear_row(c, o);
    for (int64_t k = 0; k < COLOURS; k++) {
        set(c, k, k, 1);
        set(c, COLOURS + k, k, -1);
    }
    c->b[CONSTANT] = (float)constant_level;
}

/* Output convolution, after norm and silu: the carried channels to colours. The norm divides by
 * about constant / sqrt(channels). */
static void begin_out(const conv *c)
{
    const float scale = (float)(constant_level / sqrt((double)c->in));
    for (int64_t k = 0; k < COLOURS; k++) {
        clear_row(c, k);
        set(c, k, k, scale);
        set(c, k, COLOURS + k, -scale);
    }
}

/* Passes the carried channels through: unchanged, averaged over 2x2 pixels or 2 frames, or copied
 * to two frames. */
static void begin_through(const conv *c, const char *name)
{
    const bool down = has(name, "encoder."), time = has(name, "time_conv");
    for (int64_t j = 0; j < CARRIED; j++) {
        clear_row(c, j);
        if (down && time) {
            *at(c, j, j, 1, 0, 0) = *at(c, j, j, 2, 0, 0) = 0.5f;
        } else if (down && has(name, "resample.1")) {
            for (int64_t p = 0; p < 4; p++)
                *at(c, j, j, 0, p / 2, p % 2) = 0.25f;
        } else {
            set(c, j, j, 1);
        }
        if (!down && time) {
            const int64_t second = c->out / 2 + j; /* channels for the second frame */
            clear_row(c, second);
            set(c, second, j, 1);
        }
    }
}

/* quant_conv and post_quant_conv: the identity. Rows after the means (log variance) are 0. */
static void begin_identity(const conv *c)
{
    for (int64_t o = 0; o < c->out; o++) {
        clear_row(c, o);
        if (o < c->in && o < c->out)
            set(c, o, o, 1);
    }
}

static void begin_conv(const conv *c, const char *name, int64_t z_dim, uint64_t seed)
{
    const bool through =
        has(name, "conv_shortcut") || has(name, "resample.1") || has(name, "time_conv");
    fill_random(c, name, through || has(name, "conv_in") ? feature_gain : 1, seed);
    if (has(name, ".conv2.") || has(name, ".proj.")) {
        for (int64_t o = 0; o < c->out; o++)
            clear_row(c, o);
    } else if (has(name, "conv_in.")) {
        begin_in(c);
    } else if (has(name, "conv_out.")) {
        begin_out(c);
    } else if (through) {
        for (int64_t o = 0; o < c->out; o++)
            for (int64_t k = 0; k < c->kt * c->ky * c->kx; k++)
                at(c, o, CONSTANT, 0, 0, 0)[k] = 0;
        begin_through(c, name);
    } else if (has(name, "quant_conv.")) {
        begin_identity(c);
        for (int64_t i = 0; c->out == 2 * z_dim && i < z_dim; i++)
            c->b[z_dim + i] = -6;
    }
}

static const weft_weight *find_weight(const weft_weight *weight, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (!strcmp(weight[i].name, name))
            return &weight[i];
    return NULL;
}

/* Finds the convolution whose weight is `index`. Returns false if `index` is not a convolution's
 * weight. */
static bool find_conv(const weft_weight *weights, int64_t count, int64_t index, conv *c,
                      const char **name)
{
    const weft_weight *weight = &weights[index];
    const size_t length = strlen(weight->name);
    char bias_name[512];
    if (weight->shape.rank < 4 || length < 7 || length > 500 ||
        strcmp(weight->name + length - 7, ".weight"))
        return false;
    memcpy(bias_name, weight->name, length - 6);
    memcpy(bias_name + length - 6, "bias", 5);
    const weft_weight *bias = find_weight(weights, count, bias_name);
    const int64_t *d = weight->shape.dim;
    const bool cube = weight->shape.rank == 5;
    *c = (conv){weight->data,    bias ? bias->data : NULL, d[0],           d[1],
                cube ? d[2] : 1, d[cube ? 3 : 2],          d[cube ? 4 : 3]};
    *name = weight->name;
    return bias != NULL;
}

/* Returns true if every level is wide enough for the carried channels. */
static bool is_wide(const weft_weight *weight, int64_t count, int64_t z_dim)
{
    conv c;
    const char *name;
    for (int64_t i = 0; i < count; i++) {
        if (!find_conv(weight, count, i, &c, &name) || has(name, "quant_conv."))
            continue;
        const int64_t out =
            has(name, "decoder.up_blocks") && has(name, "time_conv") ? c.out / 2 : c.out;
        if ((!has(name, "conv_out.") && out < CARRIED) ||
            (!has(name, "conv_in.") && c.in < CARRIED))
            return false;
    }
    return z_dim >= COLOURS;
}

/* Narrow networks, which cannot carry colours: channel 0 carries a constant. Without a constant,
 * rows are near 0 in flat image regions, and the norm's gradient, 1 / |row|, amplifies rounding
 * errors. */
static void begin_narrow(const conv *c, const char *name)
{
    const bool through = has(name, "conv_shortcut") || has(name, "resample.1") ||
                         has(name, "time_conv") || has(name, "conv_in.");
    if (!through && !has(name, ".conv2.") && !has(name, ".proj."))
        return;
    const bool two_frames = has(name, "decoder.") && has(name, "time_conv");
    for (int64_t o = 0; o < c->out; o += two_frames ? c->out / 2 : c->out) {
        clear_row(c, o);
        c->b[o] = through ? (float)narrow_level : 0;
    }
}

void weft_wan_vae_begin(const weft_weight *weight, int64_t count, int64_t z_dim, uint64_t seed)
{
    conv c;
    const char *name;
    const bool wide = is_wide(weight, count, z_dim);
    for (int64_t i = 0; i < count; i++) {
        if (!find_conv(weight, count, i, &c, &name))
            continue;
        if (wide)
            begin_conv(&c, name, z_dim, seed);
        else
            begin_narrow(&c, name);
    }
    const weft_weight *posterior = find_weight(weight, count, "quant_conv.bias");
    for (int64_t i = 0; posterior && i < z_dim; i++)
        posterior->data[z_dim + i] = -6;
}
