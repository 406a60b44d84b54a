/* Rates in gpu-report.json, on the emulated driver. Their values say nothing; that each exists, and
 * that shares are of the peak of the GPU's model, can be tested. */
#include "base/fs.h"
#include "base/memory.h"
#include "doctor/gpu_rates.h"
#include "doctor/gpu_report.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_peer.h"
#include "kernel/cuda/cuda_verdict.h"
#include "plan/cluster/cluster.h"
#include "plan/cluster/gpu_peaks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void use_emulation(void)
{
    setenv("WEFT_CUDA_LIBRARY", WEFT_EMU_DRIVER, 1);
    setenv("WEFT_EMU_NAME", "NVIDIA H100 80GB HBM3", 1);
    if (!weft_cuda_images[0].name)
        cr_skip("no clang");
}

TestSuite(gpu_rates, .init = use_emulation);

static double number_of(const json_t *one, const char *key)
{
    return json_number_value(json_object_get(one, key));
}

/* The measured rate of an op, and its share of `peak`. */
static void check_rate(const json_t *rates, const char *op, const char *precision, double peak)
{
    size_t i;
    json_t *one, *found = NULL;
    json_array_foreach(rates, i, one)
    {
        if (!strcmp(json_string_value(json_object_get(one, "op")), op) &&
            !strcmp(json_string_value(json_object_get(one, "precision")), precision))
            found = one;
    }
    cr_assert_not_null(found, "%s in %s was not measured", op, precision);
    const bool is_bytes = json_object_get(found, "bytes_per_second");
    const double rate = number_of(found, is_bytes ? "bytes_per_second" : "flops");
    cr_expect_gt(rate, 0, "%s in %s", op, precision);
    cr_expect_float_eq(number_of(found, "of_peak") * peak, rate, 1e-6 * rate, "%s in %s: %g of %g",
                       op, precision, number_of(found, "of_peak"), rate);
}

Test(gpu_rates, each_class_has_its_share_of_the_peak)
{
    static const char *const products[] = {"matmul", "attention", "attention_grad",
                                           "conv3d", "conv3d_dx", "conv3d_dw"};
    static const char *const moves[] = {"add", "rms_norm", "permute"};
    json_t *rates;
    cr_assert_eq(weft_gpu_rates_measure(&rates), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < WEFT_COUNT(products); i++) {
        check_rate(rates, products[i], "f32", 66.9e12);
        check_rate(rates, products[i], "tf32", 494.5e12);
        check_rate(rates, products[i], "bf16", 989e12);
    }
    for (int i = 0; i < WEFT_COUNT(moves); i++) {
        check_rate(rates, moves[i], "f32", 3.35e12);
        check_rate(rates, moves[i], "bf16", 3.35e12);
    }
    json_decref(rates);
}

Test(gpu_rates, copies_reach_other_gpus)
{
    json_t *copies;
    setenv("WEFT_EMU_DEVICES", "3", 1);
    cr_assert_eq(weft_gpu_copies_measure(&copies), WEFT_OK, "%s", weft_error_message());
    cr_expect_gt(number_of(copies, "inside"), 0);
    cr_expect_gt(number_of(copies, "from_pinned"), 0);
    cr_expect_gt(number_of(copies, "to_pinned"), 0);
    const json_t *peers = json_object_get(copies, "peers");
    cr_assert_eq(json_array_size(peers), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(peers, i);
        cr_expect_eq(json_integer_value(json_object_get(one, "gpu")), (json_int_t)i + 1);
        cr_expect(json_is_true(json_object_get(one, "direct")));
        cr_expect_gt(number_of(one, "bytes_per_second"), 0);
    }
    json_decref(copies);
}

Test(gpu_rates, copies_through_the_host_are_marked)
{
    json_t *copies;
    setenv("WEFT_EMU_DEVICES", "2", 1);
    setenv("WEFT_EMU_NO_PEERS", "1", 1);
    cr_assert_eq(weft_gpu_copies_measure(&copies), WEFT_OK, "%s", weft_error_message());
    const json_t *one = json_array_get(json_object_get(copies, "peers"), 0);
    cr_expect(json_is_false(json_object_get(one, "direct")));
    cr_expect_gt(number_of(one, "bytes_per_second"), 0);
    json_decref(copies);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* A GPU that fails while copies or rates are measured: the report names the error and did not pass,
 * and the error is returned. `figure`: which one has the error. */
static void check_fault(const char *fault, weft_message_class kind, const char *figure)
{
    char folder[] = "/tmp/weft-report-XXXXXX";
    weft_gpu_report report = {.ops = json_array()};
    json_t *written;
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    setenv("WEFT_EMU_FAULT", fault, 1);
    setenv("WEFT_EMU_DEVICES", "2", 1);
    setenv("WEFT_EMU_MEMORY", "200000000", 1); /* small copies */
    cr_assert_eq(weft_cuda_gpu_get(&report.gpu), WEFT_OK, "%s", weft_error_message());
    cr_expect_neq(weft_gpu_report_measure(&report), WEFT_OK, "%s", fault);
    cr_expect_eq(weft_error_class(), kind, "%s: %s", fault, weft_error_message());
    cr_assert_eq(weft_json_load("gpu-report.json", &written), WEFT_OK, "%s", weft_error_message());
    cr_expect(json_is_false(json_object_get(written, "passed")), "%s", fault);
    const char *error = json_string_value(json_object_get(written, "error"));
    const char *in_figure =
        json_string_value(json_object_get(json_object_get(written, figure), "error"));
    cr_assert(error && in_figure, "%s", fault);
    cr_expect_str_eq(error, in_figure);
    cr_expect(strstr(error, "GPU 0"), "%s", error);
    json_decref(written);
    weft_gpu_report_free(&report);
    cr_expect_eq(weft_remove_tree(folder), WEFT_OK, "%s", weft_error_message());
}

Test(gpu_rates, a_gpu_lost_in_copies_does_not_pass)
{
    check_fault("lost@peer", WEFT_MSG_GPU_LOST, "copies");
}

Test(gpu_rates, an_ecc_error_in_copies_does_not_pass)
{
    check_fault("ecc@peer", WEFT_MSG_GPU_ECC, "copies");
}

/* The copy never ends, so that any deadline passes. */
Test(gpu_rates, a_copy_that_hangs_does_not_pass)
{
    setenv("WEFT_CUDA_DEADLINE", "0.2", 1);
    check_fault("hang@peer", WEFT_MSG_GPU_HANG, "copies");
}

Test(gpu_rates, a_copy_that_hangs_names_both_gpus)
{
    weft_cuda_peer peer;
    setenv("WEFT_CUDA_DEADLINE", "0.05", 1);
    setenv("WEFT_EMU_FAULT", "hang@peer", 1);
    setenv("WEFT_EMU_DEVICES", "2", 1);
    cr_expect_neq(weft_cuda_peer_measure(1, 4096, &peer), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_GPU_HANG, "%s", weft_error_message());
    cr_expect(strstr(weft_error_message(), "GPU 0 (NVIDIA H100 80GB HBM3) to GPU 1"), "%s",
              weft_error_message());
}

Test(gpu_rates, a_gpu_lost_in_rates_does_not_pass)
{
    check_fault("lost@3", WEFT_MSG_GPU_LOST, "rates");
}

Test(gpu_rates, an_ecc_error_in_rates_does_not_pass)
{
    check_fault("ecc@3", WEFT_MSG_GPU_ECC, "rates");
}

/* The presets of clusters have the peaks of the first row of their type. */
Test(gpu_rates, peaks_are_those_of_the_clusters)
{
    static const char *const presets[] = {"h100", "h200", "a100", "rtx4090", "v100"};
    weft_arena *arena = weft_arena_create();
    for (int i = 0; i < WEFT_COUNT(presets); i++) {
        weft_cluster c;
        cr_assert_eq(weft_cluster_load(arena, presets[i], &c), WEFT_OK);
        const weft_gpu_peaks *peaks = weft_gpu_peaks_of_type(c.device.type);
        cr_assert_not_null(peaks, "%s", c.device.type);
        cr_expect_eq(peaks->bf16_flops, c.device.flops, "%s", presets[i]);
        cr_expect_eq(peaks->bandwidth, c.device.memory_bandwidth, "%s", presets[i]);
    }
    cr_expect_null(weft_gpu_peaks_of_name("Emulated GPU"));
    cr_expect_eq(weft_gpu_peaks_of_name("NVIDIA H100 PCIe")->bf16_flops, 756e12);
    cr_expect_eq(weft_gpu_peaks_of_name("NVIDIA H200")->bandwidth, 4.8e12);
    cr_expect_null(weft_gpu_peaks_of_name("NVIDIA GH200 480GB"));
    weft_arena_free(arena);
}
