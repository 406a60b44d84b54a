/* Mel spectrograms and audio latents are compared with PyTorch (tools/golden_ltx2_sound.py), and the
 * resampled sound with a tone. Bounds are of f32: spectrograms are computed in f64 and rounded, and
 * latents are sums of some hundred f32 products. */
#include "latent/sound_encoder.h"

#include "base/memory.h"
#include "exec/store/store.h"
#include "format/tensors/tensors.h"
#include "kernel/cpu/table.h"
#include "video/sound_resample.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN "tests/golden/"

static const char *in_source(const char *name, char path[512])
{
    const char *root = getenv("SRC");
    snprintf(path, 512, "%s/%s", root ? root : ".", name);
    return path;
}

static weft_tensors *golden(void)
{
    char path[512];
    weft_tensors *file;
    cr_assert_eq(weft_tensors_open(in_source(GOLDEN "ltx2_sound.safetensors", path), &file),
                 WEFT_OK);
    return file;
}

static const weft_stored_tensor *tensor(const weft_tensors *file, const char *name)
{
    const weft_stored_tensor *t = weft_tensors_find(file, name);
    cr_assert(t && t->dtype == WEFT_F32, "%s", name);
    return t;
}

/* Values of a tensor, heap. */
static float *values_of(const weft_stored_tensor *t)
{
    float *values = weft_alloc(t->count * (int64_t)sizeof *values);
    cr_assert(values);
    weft_tensor_to_f32(t, values);
    return values;
}

static double relative(const float *ours, const float *theirs, int64_t count)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        error += pow((double)ours[i] - (double)theirs[i], 2);
        norm += pow((double)theirs[i], 2);
    }
    return sqrt(error / norm);
}

/* The golden file has channels first. */
static void check_mel(const char *sound_name, const char *mel_name, weft_mel mel)
{
    weft_tensors *file = golden();
    const weft_stored_tensor *sound = tensor(file, sound_name), *made = tensor(file, mel_name);
    const int64_t channels = sound->dim[0], count = sound->dim[1],
                  steps = weft_mel_steps(&mel, count);
    cr_assert_eq(made->dim[1], steps);
    cr_assert_eq(made->dim[2], mel.bins);
    float *out = weft_alloc(made->count * 4), *theirs = weft_alloc(made->count * 4),
          *samples = values_of(sound), *first = values_of(made);
    cr_assert_eq(weft_mel_spectrogram(&mel, samples, channels, count, out), WEFT_OK);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < steps * mel.bins; i++)
            theirs[i * channels + c] = first[c * steps * mel.bins + i];
    const double error = relative(out, theirs, made->count);
    cr_expect_lt(error, 1e-6, "%s: relative error %g", mel_name, error);
    weft_free(out);
    weft_free(theirs);
    weft_free(samples);
    weft_free(first);
    weft_tensors_close(file);
}

Test(sound_encoder, spectrograms_are_those_of_torch)
{
    check_mel("wide", "wide_mel", (weft_mel){16000, 1024, 160, 64});
    check_mel("narrow", "narrow_mel", (weft_mel){400, 1024, 10, 16});
}

Test(sound_encoder, a_short_sound_is_an_error)
{
    float sound[512] = {0}, out[64];
    const weft_mel mel = {400, 1024, 1024, 4};
    cr_expect_neq(weft_mel_spectrogram(&mel, sound, 1, 512, out), WEFT_OK);
}

Test(sound_encoder, latents_are_those_of_diffusers)
{
    char path[512];
    weft_model vae;
    weft_sound_format format;
    weft_sound_encoder *encoder;
    weft_tensors *file = golden();
    const weft_stored_tensor *sound = tensor(file, "narrow"), *theirs = tensor(file, "latents");
    const char *folder = in_source(GOLDEN "pipelines/ltx2/audio_vae", path);
    cr_assert_eq(weft_model_open_as(folder, WEFT_ROLE_AUDIO_AUTOENCODER, &vae), WEFT_OK);
    cr_assert_eq(weft_sound_format_of(&vae, &format), WEFT_OK);
    /* 9 frames at 5 per second are 720 samples, 73 steps and 19 latents */
    cr_expect_eq(weft_sound_samples(&format, 9, 5), 720);
    cr_expect_eq(weft_sound_latent_count(&format, 720), theirs->dim[0]);
    cr_expect_eq(format.features, theirs->dim[1]);
    cr_assert_eq(weft_sound_encoder_open(&vae, &weft_backend_cpu, 720, &encoder), WEFT_OK);
    weft_store *store = weft_store_create_for(&weft_backend_cpu);
    cr_assert_eq(weft_sound_encoder_load(encoder, folder, store), WEFT_OK);
    cr_assert_eq(weft_sound_encoder_bind(encoder, store), WEFT_OK);
    float *ours = weft_alloc(theirs->count * 4), *samples = values_of(sound),
          *expected = values_of(theirs);
    cr_assert_eq(weft_sound_encoder_run(encoder, samples, ours), WEFT_OK);
    const double error = relative(ours, expected, theirs->count);
    cr_expect_lt(error, 1e-5, "relative error %g", error);
    weft_free(ours);
    weft_free(samples);
    weft_free(expected);
    weft_sound_encoder_free(encoder);
    weft_store_free(store);
    weft_tensors_close(file);
}

/* A tone below half of both rates keeps its amplitude and its phase. */
static void check_tone(int64_t from, int64_t to)
{
    enum { COUNT = 4800 };
    static float tone[2 * COUNT];
    const double hz = 100;
    float *made;
    int64_t count;
    for (int i = 0; i < COUNT; i++) {
        tone[i] = (float)sin(2 * M_PI * hz * i / (double)from);
        tone[COUNT + i] = (float)cos(2 * M_PI * hz * i / (double)from);
    }
    cr_assert_eq(weft_sound_resample("tone", tone, 2, COUNT, from, to, &made, &count), WEFT_OK);
    cr_assert_eq(count, llround(COUNT * (double)to / (double)from));
    double worst = 0;
    for (int64_t i = count / 4; i < 3 * count / 4; i++)
        worst =
            fmax(worst,
                 fmax(fabs((double)made[i] - sin(2 * M_PI * hz * (double)i / (double)to)),
                      fabs((double)made[count + i] - cos(2 * M_PI * hz * (double)i / (double)to))));
    cr_expect_lt(worst, 1e-3, "%ld to %ld: off by %g", (long)from, (long)to, worst);
    weft_free(made);
}

Test(sound_encoder, resampling_keeps_a_tone)
{
    check_tone(48000, 16000);
    check_tone(44100, 16000);
    check_tone(16000, 48000);
    check_tone(16000, 16000);
}
