/* train_kernels_image.S - nvcc's fat binary of train_kernels.cu, as bytes; found by -I of the build's trainer */
	.section .rodata
	.globl tt_train_image
	.hidden tt_train_image
	.type tt_train_image, @object
	.balign 64
tt_train_image:
	.incbin "train_kernels.fatbin"
	.size tt_train_image, . - tt_train_image
	.section .note.GNU-stack, "", %progbits
