/* device_image.S - nvcc's fat binary of kernels.cu, as bytes; found by -I of the build's lib/gpu */
	.section .rodata
	.globl tt_device_image
	.hidden tt_device_image
	.type tt_device_image, @object
	.balign 64
tt_device_image:
	.incbin "kernels.fatbin"
	.size tt_device_image, . - tt_device_image
	.section .note.GNU-stack, "", %progbits
