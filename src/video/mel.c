#include "video/mel.h"

#include "base/memory.h"

#include <libavutil/tx.h>
#include <math.h>

typedef struct transform {
    AVTXContext *context;
    av_tx_fn run;
    AVComplexDouble *in, *out; /* [window] */
    double *window;            /* [window] */
    double *filter;            /* [bins][window / 2 + 1] */
} transform;

/* Slaney's mel scale: linear below 1,000 Hz, logarithmic above. */
static const double hz_per_mel = 200.0 / 3, knee_hz = 1000, knee_mel = 15;

static double log_step(void)
{
    return log(6.4) / 27;
}

static double mel_of(double hz)
{
    return hz < knee_hz ? hz / hz_per_mel : knee_mel + log(hz / knee_hz) / log_step();
}

static double hz_of(double mel)
{
    return mel < knee_mel ? mel * hz_per_mel : knee_hz * exp((mel - knee_mel) * log_step());
}

/* Fills the triangles of the mel bins over the frequencies of the transform. */
static void fill_filters(const weft_mel *mel, double *filter)
{
    const int64_t lines = mel->window / 2 + 1;
    const double highest = (double)(mel->rate / 2),
                 step = mel_of(highest) / (double)(mel->bins + 1);
    for (int64_t b = 0; b < mel->bins; b++) {
        const double low = hz_of(step * (double)b), peak = hz_of(step * (double)(b + 1)),
                     high = hz_of(step * (double)(b + 2));
        for (int64_t k = 0; k < lines; k++) {
            const double hz = highest * (double)k / (double)(lines - 1),
                         up = (hz - low) / (peak - low), down = (high - hz) / (high - peak);
            filter[b * lines + k] = fmax(0, fmin(up, down)) * 2 / (high - low);
        }
    }
}

static weft_status open_transform(const weft_mel *mel, transform *t)
{
    const int64_t size = mel->window, lines = size / 2 + 1;
    const double one = 1;
    t->in = weft_alloc_aligned(size * (int64_t)sizeof *t->in);
    t->out = weft_alloc_aligned(size * (int64_t)sizeof *t->out);
    t->window = weft_calloc(size, sizeof *t->window);
    t->filter = weft_calloc(mel->bins * lines, sizeof *t->filter);
    WEFT_TRY(WEFT_ALLOCATED(t->in && t->out && t->window && t->filter, "a spectrogram"));
    if (av_tx_init(&t->context, &t->run, AV_TX_DOUBLE_FFT, 0, (int)size, &one, 0) < 0)
        return weft_no_memory("a spectrogram");
    for (int64_t i = 0; i < size; i++)
        t->window[i] = 0.5 - 0.5 * cos(2 * M_PI * (double)i / (double)size);
    fill_filters(mel, t->filter);
    return WEFT_OK;
}

static void close_transform(transform *t)
{
    av_tx_uninit(&t->context);
    weft_free(t->in);
    weft_free(t->out);
    weft_free(t->window);
    weft_free(t->filter);
}

/* Index of the sample that position `at` reflects to. */
static int64_t reflected(int64_t at, int64_t count)
{
    at = at < 0 ? -at : at;
    return at < count ? at : 2 * (count - 1) - at;
}

/* One step of one channel, to out[bin * stride]. */
static void transform_step(const weft_mel *mel, const transform *t, const float *samples,
                           int64_t count, int64_t step, float *out, int64_t stride)
{
    const int64_t size = mel->window, lines = size / 2 + 1, first = step * mel->hop - size / 2;
    for (int64_t i = 0; i < size; i++)
        t->in[i] =
            (AVComplexDouble){t->window[i] * (double)samples[reflected(first + i, count)], 0};
    t->run(t->context, t->out, t->in, sizeof *t->in);
    for (int64_t b = 0; b < mel->bins; b++) {
        double sum = 0;
        for (int64_t k = 0; k < lines; k++)
            sum += t->filter[b * lines + k] * hypot(t->out[k].re, t->out[k].im);
        out[b * stride] = (float)log(fmax(sum, 1e-5));
    }
}

weft_status weft_mel_spectrogram(const weft_mel *mel, const float *samples, int64_t channels,
                                 int64_t count, float *out)
{
    transform t = {0};
    weft_status_code status = WEFT_OK;
    if (count <= mel->window / 2)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(count)),
                          "a spectrogram of %" PRId64 " samples is not possible; windows of "
                          "%" PRId64 " samples need at least %" PRId64,
                          count, mel->window, mel->window / 2 + 1);
    WEFT_GO(open_transform(mel, &t));
    for (int64_t s = 0; s < weft_mel_steps(mel, count); s++)
        for (int64_t c = 0; c < channels; c++)
            transform_step(mel, &t, samples + c * count, count, s,
                           out + s * mel->bins * channels + c, channels);
out:
    close_transform(&t);
    return status;
}
