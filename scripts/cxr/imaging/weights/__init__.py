"""The weights stage: downloads published weights of large nets and converts each file to safetensors once."""
